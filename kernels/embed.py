"""Writes a text file as a NUL-terminated C array: embed.py INPUT OUTPUT SYMBOL INCLUDE."""
import sys

source, target, symbol, include = sys.argv[1:]
with open(source, "rb") as file:
    data = file.read()
if b"\0" in data:
    sys.exit(f"{source}: holds a NUL byte")
with open(target, "w", encoding="ascii") as file:
    file.write(f'/* Generated from {source.rsplit("/", 1)[-1]}. */\n#include "{include}"\n\n')
    file.write(f"const char {symbol}[] = {{\n")
    for start in range(0, len(data), 16):
        file.write("".join(f"{byte}," for byte in data[start : start + 16]) + "\n")
    file.write("0};\n")
