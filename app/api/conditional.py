"""Conditional requests: whether the caller has a representation already (RFC 9110, section 13.1.2)."""

import re

_TAG = re.compile(r'(?:W/)?("[\x21\x23-\x7e\x80-\xff]*")')


def none_match(if_none_match: str | None, tag: str) -> bool:
    """Whether none of the entity tags that the header lists is ``tag``: the condition to send content.

    Tags are compared weakly, as the header wants it. A header that is not a list of tags matches nothing.
    """
    if if_none_match is None:
        return True
    if if_none_match.strip() == "*":
        return False
    return tag.removeprefix("W/") not in _TAG.findall(if_none_match)
