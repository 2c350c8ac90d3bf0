# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Plain decoding and prompt lookup at two lengths, on six small tasks.

  python -m specjax.run --config=configs/quickstart.py --workdir=runs/quickstart

Two CPU cores need a few minutes, the first time plus a download of 93 MB. The
tasks copy from their prompt to different degrees, which is what prompt lookup
lives on: an edit of code and an extraction copy much, a story copies nothing.
The prompts were fixed before anything was timed; the two lengths were chosen
after a look at several, so do not read them as the best for other prompts. On
every machine expect about 1.66 tokens a target call with 4 drafted tokens and
1.75 with 7, and 6 of 6 answers matched; speed depends on the machine.

To watch one answer grow, drafted tokens marked:

  python -m specjax.run --config=configs/quickstart.py \
    --config.prompts="Explain in two sentences why the sky is blue."
"""

from ml_collections import ConfigDict

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
  config.runs = 3
  config.replays = 3
  config.seed = 0
  config.sampling = ConfigDict({"temperature": 0.0})
  config.methods = ConfigDict(
    {
      f"ngram_{length}": {
        "drafter": {"type": "ngram", "length": length, "max_n": 3},
        "verifier": {"type": "coupled"},
        "policy": {"type": "fixed", "length": length},
      }
      for length in (4, 7)
    }
  )
  config.lock()
  return config
