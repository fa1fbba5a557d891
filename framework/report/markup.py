"""Small pieces of HTML, every text escaped, and the one place that knows how. No torch."""

from collections.abc import Iterable, Sequence
from html import escape


class Html(str):
    """Markup that is escaped already."""

    __slots__ = ()


def text(value: object) -> Html:
    """Return any value as text that no parser takes for markup; lone surrogates and controls are shown as escapes."""
    if isinstance(value, Html):
        return value
    plain = str(value).encode("utf-8", "backslashreplace").decode("utf-8")
    shown = "".join(c if c >= " " or c in "\n\t" else f"\\x{ord(c):02x}" for c in plain)
    return Html(escape(shown, quote=True))


def tag(name: str, /, *content: object, **attributes: object) -> Html:
    """Return an element; `class_` and `data_x` become `class` and `data-x`, None leaves an attribute out."""
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{said}>{''.join(text(part) for part in content)}</{name}>")


def empty(name: str, /, **attributes: object) -> Html:
    """Return an element without content or end, such as `img`."""
    return Html(tag(name, **attributes).removesuffix(f"</{name}>"))


def join(parts: Iterable[object]) -> Html:
    return Html("".join(text(part) for part in parts))


def table(head: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "") -> Html:
    """Return a table in a box that scrolls sideways by keyboard too."""
    body = join(tag("tr", join(tag("td", cell) for cell in row)) for row in rows)
    title = tag("caption", caption) if caption else Html()
    top = tag("thead", tag("tr", join(tag("th", cell, scope="col") for cell in head)))
    return tag("div", tag("table", title, top, tag("tbody", body)), class_="scroll", tabindex="0", role="group",
               aria_label=caption or ", ".join(head))  # fmt: skip


def fold(summary: str, *content: object, open_: bool = False) -> Html:
    """Return a part that opens and closes without a script."""
    return tag("details", tag("summary", summary), *content, open="" if open_ else None)


def section(key: str, title: str, *content: object) -> Html:
    return tag("section", tag("h2", title), *content, id=key, aria_label=title)
