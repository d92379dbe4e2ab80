"""The interpreter ends while daemon threads are in calls: with status 0 and without a signal, for every call, with the
model closed or open. CPython may end such threads, but not the process."""

import unittest

import exits
import tactus
from tactus import _native
from tiny_model import TinyModel

ROUNDS = 2  # per call, with the model closed and left open


class ExitTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tiny = TinyModel()

    @classmethod
    def tearDownClass(cls):
        cls.tiny.close()

    def test_the_process_ends_well_whatever_its_threads_call(self):
        for name, call in exits.CALLS.items():
            for i in range(ROUNDS):
                with self.subTest(call=name, round=i):
                    self.assertEqual(exits.run(exits.program(self.tiny, call, 3 * i, closes=i % 2 == 0)), "")

    def test_every_public_call_is_in_the_table(self):
        self.assertEqual(exits.public_calls(tactus) - set(exits.CALLS), set())

    def test_every_native_call_is_refused_once_the_interpreter_ends(self):
        text = exits.HEAD + exits.PROGRAM[: exits.PROGRAM.index("kept = []")].format(
            path=str(self.tiny.path), options=self.tiny.options
        )
        text += """
from tactus import _native
engine = model._engine
request = engine.prepare(b'{"prompt": [0], "max_tokens": 1}', [1], False, False)
answers = _native.Answers(engine, True)
job = _native.PlannedJob(0)
job.add([1], 1, False, 0)
texts = [("model", b"llama-3.1-8b"), ("device", b"a100")]
objects = {"ReadyRequest": request, "Engine": engine, "Answers": answers, "PlannedJob": job}
arguments = {
    "prepare": (b"{}", [1], False, False), "tokenize": (b"a", False), "detokenize": ([1],), "token_string": (1,),
    "submit": (0, request, False), "wait_for_room": (request, 1.0), "wait": (1.0,), "cancel_one": (0,),
    "place": (1, 1), "add": ([1], 1, False, 0),
    "plan": ((1.0, 0.0, 1.0, 1.0, 1.0), "fcfs", 1, 1, 0.0, (0.0, 0.0), 0), "check_body": (b"{}", False),
    "simulate": (texts,), "plan_costs": (texts,),
}
made = {"Engine": ([],), "Answers": (engine, False), "PlannedJob": (0,)}
_native.end_calls()
def refused(name, call):
    try:
        call()
        print("not refused:", name)
    except tactus.UnavailableError as error:
        assert "shutting down" in str(error) and error.message == str(error) and error.param == "", error
for name, value in vars(_native).items():
    if name in ("version", "end_calls", "calls_under_way") or name.startswith("__"):
        continue
    if name not in objects:
        refused(name, lambda: value(*arguments.get(name, ())))
        continue
    if name in made:
        refused(name, lambda: value(*made[name]))
    for attribute, its in vars(value).items():
        if attribute.startswith("_"):
            continue
        if callable(its):
            refused(attribute, lambda: getattr(objects[name], attribute)(*arguments.get(attribute, ())))
        else:
            refused(attribute, lambda: getattr(objects[name], attribute))
print("end")
"""
        self.assertEqual(exits.run(text), "")

    def test_calls_are_counted_until_they_return(self):
        self.assertEqual(_native.calls_under_way(), 0)


if __name__ == "__main__":
    unittest.main()
