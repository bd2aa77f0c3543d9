"""The example of a system behind sockets, which drops one record in a thousand at each of three
places: on arrival, as if the network had lost it; between arrival and results; and after its
results were numbered, as if the network had lost them."""

import sys
from pathlib import Path

EVERY, BEFORE, INSIDE, AFTER = 1_000, 17, 500, 900


def main():
    sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "socket"))
    import system  # reads the variables of a run

    class DroppingAnswers(system.Answers):
        """Numbers results and does not send them while `is_dropping`."""

        is_dropping = False

        def send(self, frame):
            if not self.is_dropping:
                super().send(frame)

    number = received = 0
    output = system.address("OUTPUT")
    answers = DroppingAnswers(system.transport("ANSWERS"), output)
    entry = system.address("INPUT")
    for some in system.frames(system.transport("TRANSPORT"), entry):
        for stream, topic, key, value in some:
            if topic == system.END:
                answers.end(received)
                continue
            if topic == system.HELLO:
                continue
            place = -1
            if stream != system.PROBES:
                place, number = number % EVERY, number + 1
                received += place != BEFORE
            answers.is_dropping = place == AFTER
            if place not in (BEFORE, INSIDE):
                for stage, result in system.results(value):
                    answers.result(stage, key, result)
            answers.is_dropping = False
        answers.flush()


if __name__ == "__main__":
    main()
