# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Plain decoding, prompt lookup, a trained head and both, on six small tasks.

  python -m specjax.run --config=configs/quickstart.py --workdir=runs/quickstart

Two CPU cores need a few minutes, the first time plus a download of 93 MB. The
tasks copy from their prompt to different degrees, which is what prompt lookup
lives on: an edit of code and an extraction copy much, a story copies nothing.
There the head of configs/drafters/smollm2 helps, which learnt from other
answers of this model; both `gain` methods draft only where that pays. The
prompts were fixed before anything was timed; the length of the lookup was
chosen after a look at several, so do not read it as the best for other prompts.
On every machine 6 of 6 answers match; speed depends on the machine.

To watch one answer grow, drafted tokens marked:

  python -m specjax.run --config=configs/quickstart.py \
    --config.prompts="Explain in two sentences why the sky is blue."
"""

import pathlib

from ml_collections import ConfigDict

HEADS = pathlib.Path(__file__).parent / "drafters" / "smollm2" / "eagle3"
LOOKUP = {"type": "ngram", "length": 7, "max_n": 3}
EAGLE = {"type": "eagle", "heads": str(HEADS), "length": 3}
GAIN = {"type": "expected_gain", "least": 0.35, "weight": 8.0}
METHODS = {
  "lookup": (LOOKUP, {"type": "fixed"}),
  "eagle3_gain": (
    EAGLE,
    GAIN | {"weight": 16.0, "later": 0.5, "widths": (0, 1)},
  ),
  "both_gain": (
    {"type": "cascade", "first": LOOKUP | {"min_n": 2}, "second": EAGLE},
    GAIN,
  ),
}

CODE_EDIT = """\
Rename the variable `total` to `weight_sum` in this function and repeat the \
whole function, changing nothing else.

def mean_weight(parcels, default):
  total = 0.0
  count = 0
  for parcel in parcels:
    if parcel.weight is None:
      total += default
    else:
      total += parcel.weight
    count += 1
  return total / count
"""

EXTRACTION = """\
Copy from the passage every sentence that mentions a date, word for word.

The ferry Marigold was launched on 4 May 1931 at a small yard on the estuary. \
She carried forty passengers and two lorries. Her first winter was hard, and \
the owners nearly sold her. On 12 August 1938 she was fitted with a diesel \
engine, the first of her class. The crew called the new engine the Colonel. \
She made her last crossing on 30 September 1964 and is now a museum.
"""

SUMMARY = """\
Summarize the following text in two sentences.

Community gardens on former railway land have spread through the city during \
the last ten years. The soil along the tracks is often poor, so the gardeners \
grow vegetables in raised beds filled with compost from the city's own plant. \
Each garden is run by an association that rents the land for a small yearly \
fee and decides who gets a plot. Waiting lists are long, and several \
associations now ask for a few hours of common work each month. Researchers \
who counted insects found more kinds of wild bees in the gardens than in the \
parks nearby, mostly because something is in flower from March to October.
"""

TRANSLATION = """\
Translate into English: Der Zug nach Hamburg fährt heute von Gleis sieben ab. \
Wegen einer Baustelle kommt er etwa zwanzig Minuten später an als geplant.
"""

QUESTION = "Why do leaves change their colour in autumn?"

STORY = (
  "Write a short story about a lighthouse keeper who finds a letter in a "
  "bottle."
)


def get_config(arg: str = "") -> ConfigDict:
  """The comparison; it takes no argument."""
  del arg
  config = ConfigDict()
  config.target = "smollm2-135m-instruct-q4_1"
  config.dtype = "float32"
  config.prompts = (
    CODE_EDIT,
    EXTRACTION,
    SUMMARY,
    TRANSLATION,
    QUESTION,
    STORY,
  )
  config.categories = (
    "code edit",
    "extraction",
    "summary",
    "translation",
    "question",
    "story",
  )
  config.max_new_tokens = 64
  config.batch_size = 1
  config.runs = 2
  config.replays = 1
  config.seed = 0
  config.sampling = ConfigDict({"temperature": 0.0})
  config.methods = ConfigDict(
    {
      name: {
        "drafter": drafter,
        "verifier": {"type": "coupled"},
        "policy": policy,
      }
      for name, (drafter, policy) in METHODS.items()
    }
  )
  config.lock()
  return config
