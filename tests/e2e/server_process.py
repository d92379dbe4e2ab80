"""Starts the real `tactus serve` on a free port, for one test module, and stops it with SIGTERM.

TACTUS_BINARY is the program. TACTUS_DEFAULT_MODEL is a model file; where it is absent the tests run on a tiny random model,
which answers nonsense in the right shape.
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import threading

CHAT_TEMPLATE = """{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}
{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"""

TINY_CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512,
    "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "bos_token_id": 1, "eos_token_id": 2,
    "tie_word_embeddings": True, "hidden_act": "silu",
}


def default_model():
    path = os.environ.get("TACTUS_DEFAULT_MODEL", "")
    return path if path and pathlib.Path(path).is_file() else None


class ServerProcess:
    def __init__(self, *args, real_model=True, model=None, name="test-model"):
        self.folder = tempfile.TemporaryDirectory()
        self.real = real_model and default_model() is not None
        command = [os.environ["TACTUS_BINARY"], "serve"]
        if model:
            command.append(str(model))
        elif self.real:
            command.append(default_model())
        else:
            folder = pathlib.Path(self.folder.name)
            (folder / "config.json").write_text(json.dumps(TINY_CONFIG))
            (folder / "chat.jinja").write_text(CHAT_TEMPLATE)
            command += [str(folder), "--load-format", "dummy", "--chat-template", str(folder / "chat.jinja")]
        command += ["--port", "0", "--kv-cache-memory", "256MiB", "--served-model-name", name, *args]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("TACTUS_")}
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        self.lines = []
        self.url = None
        for line in self.process.stderr:
            self.lines.append(line)
            if match := re.match(r"ready: .* on (http://\S+)", line):
                self.url = match.group(1)
                break
        if self.url is None:
            self.process.wait()
            self.process.stdout.close()
            self.process.stderr.close()
            self.folder.cleanup()
            raise RuntimeError("the server did not start:\n" + "".join(self.lines))
        # Keep reading, so that a full pipe never holds the server.
        self.reader = threading.Thread(target=lambda: self.lines.extend(self.process.stderr), daemon=True)
        self.reader.start()

    def stop(self, send=True):
        """Returns the exit status; send=False only waits for it."""
        if send and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(timeout=120)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        self.reader.join()
        self.output = self.process.stdout.read()
        self.process.stdout.close()
        self.process.stderr.close()
        self.folder.cleanup()
        return status
