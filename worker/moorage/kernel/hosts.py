"""Which hosts may lie outside this network, by name alone (clause catalog.destinations)."""

import ipaddress
import re
from typing import Final

_NUMERIC_LABEL = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*")
_LOCAL_NAMES: Final = ("localhost", "local", "internal", "lan", "home.arpa")

_IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


def is_public(host: str) -> bool:
    """Whether a host, a name or an address without brackets, may lie outside this network.

    A name that resolves to an inside address is the platform's to refuse.
    """
    name = host.lower().rstrip(".")
    try:
        return _is_public_address(ipaddress.ip_address(name))
    except ValueError:
        pass
    last = name.rpartition(".")[2]
    if _NUMERIC_LABEL.fullmatch(last):
        return False  # an IPv4 address in one of its other spellings: 127.1, 0x7f000001
    return "." in name and not any(name == local or name.endswith(f".{local}") for local in _LOCAL_NAMES)


def _is_public_address(address: _IpAddress) -> bool:
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
        if inner is not None:
            return _is_public_address(inner)
        if address in ipaddress.IPv6Network("64:ff9b::/96"):
            return _is_public_address(ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF))
        if address not in ipaddress.IPv6Network("2000::/3"):
            return False  # all that is routed lies there; the rest has compatible, site-local and translated forms
    return address.is_global and not address.is_multicast
