"""Taking what looks like a credential out of a text: one implementation for errors that are stored, for logs and for URLs.

It looks at shape alone, so it takes too much rather than too little: what a person reads afterwards keeps its words, and
loses what stands where a secret would. No pattern takes more than one pass over the text.
"""

import re
from typing import Final

MASK: Final = "[secret]"

_PARAMETERS = ("key", "code", "pass")
_ENDINGS = (
    "token", "secret", "password", "passwd", "pwd", "apikey", "accesskey", "signature", "sig", "auth", "authorization",
    "credential", "credentials", "jwt",
)  # fmt: skip
_VALUE = re.compile(r"(?:moor|sk|pk|rk|whsec|gh[opsu]|github_pat|xox[a-z])[_-].+|eyJ[\w-]+\.[\w-]+\..*")

_NAMED = r"""
(?i)(?<![\w.-])(?P<name>["']?[\w.-]{0,60}?
    (?:token|secret|password|passwd|pwd|api[_-]?key|access[_-]?key|private[_-]?key|signature|credentials?|jwt|[_-]sig|[_-]auth))
(?P<sign>["']?[ \t]{0,4}(?:=>|[:=])[ \t]{0,4})
(?:"[^"\r\n]*"?|'[^'\r\n]*'?|[^\s"'&,;(){}\[\]<>][^\s"'&,;)}\]<>]*)
"""
"""A name that ends as names of secrets do, a sign, and a value, in quotes or up to the next separator."""

_HEADERS = r"(?i)\b((?:proxy-)?authorization|(?:set-)?cookie|x-api-key)(\"?'?[ \t]*[:=][ \t]*)[^\r\n]+"
_SCHEMES = r"(?i)\b(bearer)\s+[^\s,;\"']+"
_BASIC = r"(?i:\b(basic))[ \t]+(?=[A-Za-z0-9+/]*(?:[0-9+/=]|[a-z][A-Z]))[A-Za-z0-9+/]{6,}={0,2}"
_USERINFO = r"([A-Za-z][A-Za-z0-9+.-]{0,30}://)[^\s/?#]*@"
_KEY_BLOCK = r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?:(?!-----END)[\s\S])*(?:-----END [A-Z ]{0,40}-----)?"
_TOKENS = r"""
(?<![A-Za-z0-9])(?:
    [A-Za-z]{2,8}_[A-Za-z0-9_-]{40,}
    | eyJ[\w-]{4,}\.[\w-]+(?:\.[\w-]*)*
    | (?:sk|pk|rk|whsec|xox[a-z]|gh[opsur]|github_pat|glpat|npm|pypi|hf|dop_v1|shpat)[_-][\w-]{8,}
    | (?:AKIA|ASIA)[0-9A-Z]{12,} | AIza[\w-]{30,} | ya29\.[\w-]{8,} | SG\.[\w-]{8,}\.[\w-]{8,}
)
"""

_STEPS: Final = (
    (re.compile(_KEY_BLOCK), MASK),
    (re.compile(_USERINFO), rf"\1{MASK}@"),
    (re.compile(_HEADERS), rf"\1\2{MASK}"),
    (re.compile(_SCHEMES), rf"\1 {MASK}"),
    (re.compile(_NAMED, re.VERBOSE), rf"\g<name>\g<sign>{MASK}"),
    (re.compile(_BASIC), rf"\1 {MASK}"),
    (re.compile(_TOKENS, re.VERBOSE), MASK),
)


def mask(text: str) -> str:
    """The text with MASK in the place of whatever looks like a credential: authorization and cookie headers, bearer and
    basic credentials, users in URLs, values of names like `api_key`, tokens with known prefixes, JWTs and private keys."""
    for pattern, by in _STEPS:
        text = pattern.sub(by, text)
    return text


def names_a_secret(parameter: str) -> bool:
    """Whether a query parameter of this name carries a credential."""
    letters = "".join(char for char in parameter.lower() if char.isalnum())
    return letters in _PARAMETERS or letters.endswith(_ENDINGS)


def is_a_secret(value: str) -> bool:
    """Whether a whole value has the form of a well-known kind of token."""
    return _VALUE.fullmatch(value) is not None
