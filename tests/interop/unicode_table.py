"""src/text/unicode_table.h, from Python's unicodedata2 16.0.0 and perl's table of ages:

    unicode_table.py >src/text/unicode_table.h
"""

import itertools
import subprocess

import unicodedata2 as unicodedata

NAMES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cs Co Cn".split()
LETTER = {name: chr(65 + i) for i, name in enumerate(NAMES[:26])} | {
    name: chr(97 + i) for i, name in enumerate(NAMES[26:])}
# a letter of its own for Lu and Ll by turns
TURNS = "z"


def number(n):
    return str(n) if n > 1 else ""


def runs():
    of = [unicodedata.category(chr(p)) for p in range(0x110000)]
    at = 0
    while at < len(of):
        end = at
        while end + 1 < len(of) and of[end] == "Lu" and of[end + 1] == "Ll":
            end += 2
        if end - at >= 4:
            yield TURNS + number((end - at) // 2)
        else:
            end = at
            while end < len(of) and of[end] == of[at]:
                end += 1
            yield LETTER[of[at]] + number(end - at)
        at = end


def later():
    """Ranges of what normalization would change or move, and Unicode 9 did not have."""
    known = subprocess.run(
        ["perl", "-e", r'for (0 .. 0x10ffff) { print "$_\n" if chr($_) =~ /\p{Present_In: 9.0}/ }'],
        capture_output=True, check=True, text=True).stdout.split()
    known = set(map(int, known))
    composed = {c for p in range(0x110000) if unicodedata.normalize("NFD", chr(p)) != chr(p)
                for c in (chr(p), *unicodedata.normalize("NFD", chr(p)))}
    points = [p for p in range(0x110000) if p not in known and (
        unicodedata.combining(chr(p)) or chr(p) in composed)]
    for _, group in itertools.groupby(enumerate(points), key=lambda pair: pair[1] - pair[0]):
        group = [p for _, p in group]
        yield f"{group[0]:X} {group[-1]:X} "


def lines(words, width):
    line = ""
    for word in words:
        if len(line) + len(word) > width:
            yield line
            line = ""
        line += word
    yield line


def main():
    assert unicodedata.unidata_version == "16.0.0"
    print("/* Unicode 16.0: general categories, and what Unicode 9 did not have\n"
          " * of marks, and of composed characters and their parts. Written by tests/interop/unicode_table.py. */")
    print("#ifndef TESSERA_TEXT_UNICODE_TABLE_H\n#define TESSERA_TEXT_UNICODE_TABLE_H\n")
    print("/* Rows of characters: a letter for the category, A for the first of enum\n"
          " * unicode_category, 'a' for the 27th, 'z' for Lu and Ll by turns, and how many\n"
          " * (pairs of them), unless it is 1. */")
    print("static const char *const unicode_table_categories[] = {")
    print("\n".join(f'    "{line}",' for line in lines(runs(), 73)) + "\n};\n")
    print("/* Ranges of such marks, characters and parts: first and last, in hexadecimal. */")
    print("static const char unicode_table_later[] =")
    print("\n".join(f'    "{line}"' for line in lines(later(), 74)) + ";\n")
    print("#endif")


if __name__ == "__main__":
    main()
