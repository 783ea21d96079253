#!/usr/bin/env python3
"""A timer for work in stretches. It survives restarts: when the stretch ends is kept in the data folder."""

import json
import os
import threading
import time
from typing import Literal

from anyplug_ext import Extension, Failed

MINUTES = 25
LONGEST = 600  # minutes
BAR = 24  # characters

ext = Extension("pomodoro", version="1.0.0")
panel = ext.panel("pomodoro", title="Pomodoro", footer="s start · x stop · +/- five minutes · esc close")


class Timer:
    """What is going on, and the file that remembers it."""

    def __init__(self):
        self.lock = threading.Lock()
        self.ends_at = None  # in seconds since the epoch
        self.minutes = MINUTES
        self.done = 0

    @property
    def file(self):
        return os.path.join(ext.host.data_dir, "pomodoro.json")

    def load(self):
        try:
            with open(self.file, encoding="utf-8") as file:
                kept = json.load(file)
            self.ends_at, self.minutes, self.done = kept["ends_at"], kept["minutes"], kept["done"]
        except FileNotFoundError:
            pass
        except (ValueError, KeyError, TypeError) as error:
            ext.notify(f"{self.file} cannot be read ({error}); starting from zero", "warn")

    def save(self):
        kept = {"ends_at": self.ends_at, "minutes": self.minutes, "done": self.done}
        with open(self.file + ".new", "w", encoding="utf-8") as file:
            json.dump(kept, file)
        os.replace(self.file + ".new", self.file)  # nobody ever reads half a file

    def start(self, minutes):
        if not 0 < minutes <= LONGEST:
            raise Failed(f"minutes must be more than 0 and at most {LONGEST}")
        with self.lock:
            self.ends_at, self.minutes = time.time() + minutes * 60, minutes
            self.save()

    def change(self, minutes):
        """Make the stretch longer or shorter, also one that is running."""
        with self.lock:
            wanted = min(LONGEST, max(5, self.minutes + minutes))
            if self.ends_at is not None:
                self.ends_at += (wanted - self.minutes) * 60
            self.minutes = wanted
            self.save()

    def stop(self):
        with self.lock:
            was, self.ends_at = self.ends_at, None
            self.save()
        return was is not None

    def finish(self):
        """Count a stretch whose time is over; say whether there was one."""
        with self.lock:
            if self.ends_at is None or time.time() < self.ends_at:
                return False
            self.ends_at = None
            self.done += 1
            self.save()
        return True

    def lines(self):
        ends_at = self.ends_at
        if ends_at is None:
            state = ["not running"]
        else:
            left = max(0, ends_at - time.time())
            full = BAR - round(BAR * left / (self.minutes * 60))
            state = [f"{int(left // 60):02}:{int(left % 60):02} left", "█" * full + "░" * (BAR - full)]
        return [*state, f"{self.done} done"]


timer = Timer()


def draw():
    panel.lines = timer.lines()
    panel.render()


def tick():
    while True:
        if timer.finish():
            ext.notify(f"{timer.minutes:g} minutes are over: take a break", "success")
        draw()
        time.sleep(0.5)


@ext.on_start
def begin():
    timer.load()
    threading.Thread(target=tick, daemon=True).start()


@ext.tool
def pomodoro(action: Literal["start", "stop", "status"], minutes: float = MINUTES) -> dict:
    """Start or stop the person's work timer, or see how it stands.

    minutes: how long the stretch is to be
    """
    if action == "start":
        timer.start(minutes)
    elif action == "stop" and not timer.stop():
        raise Failed("no timer is running")
    draw()
    return {"running": timer.ends_at is not None, "done": timer.done, "shows": timer.lines()}


@ext.command("pomodoro", "open the work timer, or: start [minutes], stop")
def command(args):
    word, _, minutes = args.partition(" ")
    if word == "start":
        try:
            wanted = float(minutes or MINUTES)
        except ValueError:
            raise Failed(f'"{minutes}" is no number of minutes') from None
        timer.start(wanted)
        return f"{timer.minutes:g} minutes from now"
    if word == "stop":
        return "stopped" if timer.stop() else "nothing was running"
    if word:
        raise Failed("say start [minutes], stop, or nothing to open the timer")
    panel.lines = timer.lines()
    return panel


@panel.on_key
def pressed(key, text):
    if text == "s":
        timer.start(timer.minutes)
    elif text == "x":
        timer.stop()
    elif text in ("+", "-"):
        timer.change(5 if text == "+" else -5)
    draw()


if __name__ == "__main__":
    ext.run()
