# Copyright 2026 The specjax Authors.
# SPDX-License-Identifier: Apache-2.0
"""Transformers reads what is exported: a draft model, and a head's config."""

import pathlib
import tempfile

from absl.testing import absltest
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.models import sources
from specjax.models.heads import eagle_export
from tests import runs
from tests import train_objectives_test as trained
from tests.parity import make_model_golden as maker
from train import export
from train.objectives import draft_model, eagle

pytestmark = pytest.mark.parity

TOKENS = np.array([0, 5, 3, 17, 2, 11])


class ExportTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    folder = tempfile.TemporaryDirectory()
    self.addCleanup(folder.cleanup)
    self.folder = pathlib.Path(folder.name)
    self.name = str(runs.write_model(self.folder / "target.gguf"))
    self.target, self.tokenizer = sources.load(self.name)

  def test_a_draft_model_gives_the_logits_that_were_trained(self):
    objective = draft_model.draft_model(self.target, trained.no_model)
    params = trained.spread(objective.init(jax.random.key(0)))
    objective.save(params, self.folder / "drafter", self.tokenizer)
    flags = {"drafter": self.folder / "drafter", "target": self.name}
    flags |= {"format": "huggingface", "out": self.folder / "out"}
    status = export.main([f"--{name}={x}" for name, x in flags.items()])
    self.assertEqual(status, 0)
    drafter = objective.drafter(params, 1)
    (model,) = drafter.models
    cache = model.init_cache(1, len(TOKENS), len(TOKENS))
    ours = model(jnp.asarray(TOKENS[None]), cache).logits[0]
    theirs = maker.logits(maker.load(self.folder / "out"), TOKENS)
    known = self.tokenizer.num_tokens
    # Float32, summed in another order; the logits are of size 1 to 10.
    np.testing.assert_allclose(ours[:, :known], theirs[:, :known], atol=1e-4)

  def test_the_config_of_an_eagle3_head(self):
    """vLLM and SGLang read config.json by way of Transformers."""
    import transformers

    objective = eagle.eagle(self.target, jnp.arange(6))
    params = objective.init(jax.random.key(0))
    head = objective.drafter(params, 1).head
    eagle_export.save(head, self.target, self.folder / "out", 999)
    config = transformers.AutoConfig.from_pretrained(self.folder / "out")
    layers = {
      "eagle_aux_hidden_state_layer_ids": [0, 1],
      "use_aux_hidden_state": True,
    }
    wanted = {
      "architectures": ["LlamaForCausalLMEagle3"],
      "head_dim": 8,
      "num_key_value_heads": 2,
      "max_position_embeddings": 999,
      "draft_vocab_size": 6,
      "vocab_size": 48,
      "tie_word_embeddings": False,
      "eagle_config": layers,
      "eagle_aux_hidden_state_layer_ids": [1, 2],
    }
    for name, value in wanted.items():
      self.assertEqual(getattr(config, name), value, name)
    self.assertEqual(config.rope_parameters["rope_theta"], 10000.0)


if __name__ == "__main__":
  absltest.main()
