"""`pip install .` from the clone into an empty environment, and one answer with the installed package."""

import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMIT_S = 1500
PROGRAM = """
import pathlib, tactus
assert {environment!r} in tactus.__file__, tactus.__file__
assert (pathlib.Path(tactus.__file__).parent / "py.typed").exists()
with tactus.LLM({model!r}, load_format="dummy", kv_cache_memory="16MiB") as llm:
    output, = llm.generate([[1, 2, 3]], tactus.SamplingParams(max_tokens=4, ignore_eos=True), use_tqdm=False)
print(len(output.outputs[0].token_ids), "tokens")
"""


def main():
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True, timeout=120)
        python = str(pathlib.Path(folder) / "bin/python")
        subprocess.run(
            [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(ROOT)],
            check=True,
            timeout=LIMIT_S,
            env=environment,
        )
        program = PROGRAM.format(environment=folder, model=str(ROOT / "tests/install/outside/model"))
        done = subprocess.run(
            [python, "-c", program], capture_output=True, text=True, timeout=120, cwd=folder, env=environment
        )
        command = subprocess.run(
            [str(pathlib.Path(folder) / "bin/tactus"), "--version"], capture_output=True, text=True, timeout=120
        )
    print(done.stdout + done.stderr + command.stderr)
    if "has no program" not in command.stderr:
        print("install: the command `tactus` does not say that only a wheel has the program")
        return 1
    return 0 if done.returncode == 0 and done.stdout == "4 tokens\n" else 1


if __name__ == "__main__":
    sys.exit(main())
