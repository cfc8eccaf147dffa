import pytest

from gateway.client.downloads import safe_name


@pytest.mark.parametrize(
    ("name", "media_type", "expected"),
    [
        ("speech.wav", "audio/wav", "speech.wav"),
        ("../../etc/passwd", "text/plain", "passwd.txt"),
        ("/etc/cron.d/evil", "", "evil"),
        ("..\\..\\windows\\system.ini", "", "system.ini"),
        ("..", "image/png", "artifact.png"),
        (".bashrc", "text/plain", "bashrc.txt"),
        ("", "image/png", "artifact.png"),
        ("\x1b[31mred\x00.txt", "text/plain", "[31mred.txt"),
        ("a\u202egnp.exe", "", "agnp.exe"),
        ("a\u2028saved b.png", "", "asaved b.png"),
        ("con", "text/plain", "_con.txt"),
        ("what?.txt", "text/plain", "what_.txt"),
        ("Gruß.png", "image/png", "Gruß.png"),
        ("x" * 300 + ".png", "image/png", "x" * 100 + ".png"),
        ("no extension", "application/x-unheard-of", "no extension"),
        ("x." + "\N{GRINNING FACE}" * 70, "", "x." + "\N{GRINNING FACE}" * 4),
        ("x." + "y" * 18 + " z", "", "x." + "y" * 18),
    ],
)
def test_safe_name_stays_in_its_folder(name: str, media_type: str, expected: str) -> None:
    assert safe_name(name, media_type) == expected
