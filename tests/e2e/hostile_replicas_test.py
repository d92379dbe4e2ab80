"""A sample of the attack tier's part `replicas` (tests/abuse/replicas.py): replicas, peers and endpoints with false
answers, few file descriptors, hang-ups, against the real programs."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "abuse"))
import replicas


class Sample:
    """Counts the checks, like the tier's tally."""

    quick = True

    def __init__(self):
        self.cases, self.failures = 0, []

    def check(self, name, ok, message="", reproduce=b""):
        self.cases += 1
        if not ok:
            self.failures.append(f"{name}: {message}")
        return bool(ok)

    def worst(self, name, value):
        pass


class HostileReplicasTest(unittest.TestCase):
    def passes(self, part, *arguments):
        sample = Sample()
        part(sample, *arguments)
        self.assertEqual(sample.failures, [])
        self.assertGreater(sample.cases, 0)

    def test_answers_that_lie_on_their_way_through_a_router(self):
        self.passes(replicas.routed_answers)

    def test_replicas_that_lie_to_the_polls_of_a_router(self):
        self.passes(replicas.polled_replicas, "route")

    def test_replicas_that_lie_to_the_polls_of_a_picker(self):
        self.passes(replicas.polled_replicas, "epp")

    def test_servers_that_lie_to_a_load_test(self):
        self.passes(replicas.benches)

    def test_servers_that_are_no_routers(self):
        self.passes(replicas.lists)

    def test_peers_that_lie_to_a_server_that_hands_over(self):
        self.passes(replicas.handed_over)

    def test_senders_that_lie_to_a_server_that_sequences_move_to(self):
        self.passes(replicas.hostile_senders)

    def test_kv_folders_modified_by_another_program(self):
        self.passes(replicas.kv_folders)

    def test_few_descriptors_leave_no_client_without_answer(self):
        self.passes(replicas.few_descriptors)

    def test_a_disconnect_ends_no_command_by_a_signal(self):
        self.passes(replicas.hang_ups)


if __name__ == "__main__":
    unittest.main()
