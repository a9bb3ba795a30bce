"""The edge: the only code that touches the platform's own modules. Nothing here makes a JavaScript object at import."""
