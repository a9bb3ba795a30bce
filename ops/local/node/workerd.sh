#!/bin/sh
# Becomes workerd, after asking the kernel to end it when the process that started it ends.
exec setpriv --pdeathsig KILL "$MOORAGE_WORKERD" "$@"
