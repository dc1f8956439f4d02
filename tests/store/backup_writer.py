"""A process that appends to a store until it is told to end: ``python backup_writer.py DATABASE``."""

from __future__ import annotations

import sys

import flue_py

if __name__ == "__main__":
    with flue_py.sync.open(sys.argv[1], durability="normal") as store:
        sessions = [store.open_session(f"writer-{number}", mode="get_or_create") for number in range(3)]
        # Each message is answered in the same transaction: no copy may have the one without the other.
        count = 0
        print("ready", flush=True)
        while True:
            for session in sessions:
                session.append_messages(
                    [
                        {"role": "user", "content": f"question {count} " + "x" * 3000},
                        {"role": "assistant", "content": f"answer {count}"},
                    ]
                )
            count += 1
            if count % 20 == 0:
                print(count, flush=True)
