"""The picture of the README shows what the demo leaves in a terminal now."""

import re

from picture import PICTURE, picture


def test_the_picture_is_up_to_date():
    """Rule: ``python docs/_make/picture.py`` has been run. Only the seconds differ from run to run."""
    assert _said(PICTURE.read_text(encoding="utf-8")) == _said(picture())


def _said(svg):
    return re.sub(r"\b\d+(\.\d)?s\b", "(time)", " ".join(re.findall(r"<text[^>]*>([^<]*)</text>", svg)))
