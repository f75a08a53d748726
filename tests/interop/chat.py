"""Chat templates beside Jinja as the Hugging Face library has it. See chat.sh.

    chat.py CHAT LEAST FOLDER      every *.jinja of the folder; at least so many
"""

import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import jinja2.ext
import jinja2.nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(jinja2.ext.Extension):
    """{% generation %}, which changes no text."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.Scope(body).set_lineno(line)


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    def strftime_now(form):
        epoch = int(os.environ["SOURCE_DATE_EPOCH"])
        return datetime.datetime.fromtimestamp(epoch, datetime.timezone.utc).strftime(form)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    return env


def says(*contents):
    roles = ("user", "assistant")
    return [{"role": roles[i % 2], "content": c} for i, c in enumerate(contents)]


SYSTEM = [{"role": "system", "content": " Be brief.\n"}]
THOUGHT = "<think>\nIt is a \"test\".\n</think>\n\nHello."
TALKS = [
    says("Hi"), says("Hi\n", "Hello."), says(" Hi", "Hello.", "And you? 日本 🩷"),
    says("a", "b", "c", "d", "e"), SYSTEM + says("Hi"), SYSTEM + says("Hi", "  Hello.\n", "Bye"),
    SYSTEM + says("1", "2", "3", "4"), says("Hi", THOUGHT), says("Hi", THOUGHT, "More"),
    SYSTEM + says("Hi", THOUGHT, "More", THOUGHT), says("", "", "{{ x }}"),
]
TALKS = [{"messages": t, "prompt": p} for t in TALKS for p in (False, True)]


def tokenizer(text, path):
    """A tokenizer that has every marker of the template."""
    words = sorted({"<s>", "</s>", *re.findall(r"<\|.*?\|>", text)})
    base = {f"<0x{b:02X}>": b for b in range(256)}
    added = [{"id": 256 + i, "content": w, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": True} for i, w in enumerate(words)]
    (path / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": None, "pre_tokenizer": None, "post_processor": None,
        "decoder": {"type": "ByteFallback"},
        "model": {"type": "BPE", "byte_fallback": True, "vocab": base, "merges": []}}))
    (path / "tokenizer_config.json").write_text(json.dumps(
        {"bos_token": "<s>", "eos_token": "</s>"}))


def theirs(env, text):
    try:
        template = env.from_string(text)
    except jinja2.exceptions.TemplateError as error:
        return [{"error": str(error)}] * len(TALKS)
    out = []
    for talk in TALKS:
        try:
            out.append({"text": template.render(
                messages=talk["messages"], tools=None, documents=None,
                add_generation_prompt=talk["prompt"], bos_token="<s>", eos_token="</s>")})
        except Exception as error:  # whatever a template makes of itself
            out.append({"error": f"{type(error).__name__}: {error}"})
    return out


def main():
    program, least, folder = sys.argv[1], int(sys.argv[2]), pathlib.Path(sys.argv[3])
    env, same, refused, other, taken = environment(), 0, 0, 0, 0
    verbose = os.environ.get("VERBOSE")
    files = sorted(folder.glob("*.jinja"))
    for path in files:
        text = path.read_text()
        want = theirs(env, text)
        with tempfile.TemporaryDirectory() as place:
            tokenizer(text, pathlib.Path(place))
            done = subprocess.run([program, place, path], input=json.dumps(TALKS),
                                  capture_output=True, text=True, check=True)
        got = json.loads(done.stdout)
        wrong = [i for i in range(len(TALKS)) if got[i].get("text") != want[i].get("text")]
        taken += sum("text" in got[i] and "text" not in want[i] for i in wrong)
        wrong = [i for i in wrong if "text" in want[i]]
        none = all("text" not in w for w in want)
        same += not wrong and not none
        if none:
            print(f"{path.name}: Jinja refuses all: {want[0]['error']}")
        if wrong:
            refused += "error" in got[wrong[0]]
            other += "text" in got[wrong[0]]
            print(f"{path.name}: {len(wrong)} of {len(TALKS)}: {got[wrong[0]].get('error', 'other text')}")
            if verbose:
                print(TALKS[wrong[0]], "\n", want[wrong[0]], "\n", got[wrong[0]])
    print(f"{len(files)} templates: {same} the same in {len(TALKS)} conversations each, "
          f"{refused} refused, {other} differ; "
          f"{taken} conversations taken that Jinja refuses")
    if same < least or other > 0 or taken > 0:
        sys.exit(1)


main()
