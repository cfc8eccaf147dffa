"""DocTags as text."""

import pytest

from experts.vision.doctags import read_doctags


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("<doctag><text><loc_1><loc_20>One line.</text></doctag><|end_of_text|>", "One line."),
        ("<section_header_level_1>Title</section_header_level_1><text>Body.</text>", "Title\nBody."),
        ("<unordered_list><list_item>a</list_item><list_item>b</list_item></unordered_list>", "a\nb"),
        ("<otsl><loc_3><ched>item<ched>price<nl><fcel>pen<fcel>2.50<nl></otsl>", "item\tprice\npen\t2.50"),
        ("<otsl><fcel>total<lcel><nl><ecel><fcel>9<nl></otsl>", "total\t\n\t9"),
        ("<code><loc_4><_Python_>if x:\n    print(2)</code>", "if x:\n    print(2)"),
        ("<text>if a < b and c > d</text>", "if a < b and c > d"),
        ("<picture><loc_1></picture>", ""),
        ("<text>cut off at the lim", "cut off at the lim"),
    ],
    ids=["text", "heading", "list", "table", "empty cells", "code", "comparison", "picture", "truncated"],
)
def test_text_of_doctags(markup: str, text: str) -> None:
    assert read_doctags(markup) == text
