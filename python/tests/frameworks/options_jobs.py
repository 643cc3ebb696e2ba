"""Walks the options of frameworks where rowdex has the rows: forked by jobs.py."""

from __future__ import annotations


from option_cases import HONOURED, REFUSED, TOKENS, clear, error_of  # isort: skip

import rowdex.torch
import rowdex.transformers
import transformers
import transformers_jobs
import trl
from options_hf import tokenizer
from options_trl import Supervised, model, of_text, of_texts, packing_to_packs, text_to_tokens

__all__ = ["honoured", "misuses", "packing_to_packs", "refused", "text_to_tokens"]


def honoured(kind: str) -> dict[str, str]:
    """What went wrong in each case."""
    found = {}
    for case in dict.fromkeys(HONOURED.get(kind, {}).values()):
        clear()
        found[case.__name__] = error_of(case)
    return found


def refused(kind: str) -> dict[str, list[str]]:
    """What each attempt was answered with."""
    found = {}
    for name, attempts in REFUSED.get(kind, {}).items():
        clear()
        found[name] = [error_of(attempt) for attempt in attempts]
    return found


def misuses() -> dict[str, str]:
    """Classes with their bases in the wrong order, and trainers of TRL that rowdex cannot serve."""
    mixin, base = rowdex.transformers.TrainerMixin, transformers.Trainer

    class Own(base):  # type: ignore[misc, valid-type]
        pass

    class Mine(mixin):  # type: ignore[misc, valid-type]
        pass

    class Preferring(mixin, trl.DPOTrainer):  # type: ignore[misc, valid-type]
        pass

    type("Fine", (Mine, Own), {})
    arguments = trl.DPOConfig("out", use_cpu=True, report_to=[], bf16=False)
    given = {"train_dataset": rowdex.torch.Dataset(TOKENS), "processing_class": tokenizer()}
    return {
        "swapped": error_of(lambda: type("T", (base, mixin), {})),
        "derived": error_of(lambda: type("T", (Own, Mine), {})),
        "trl": error_of(lambda: type("T", (trl.SFTTrainer, mixin), {})),
        "dpo": error_of(lambda: Preferring(model(), args=arguments, **given)),
        "bare": error_of(lambda: Supervised(model(), **given)),
        "loader": error_of(
            lambda: Supervised(model(), train_dataset=rowdex.Loader(rowdex.Dataset(TOKENS), batch_size=2))
        ),
        "samples": error_of(
            lambda: transformers_jobs.Trainer(
                transformers_jobs.model(), transformers.TrainingArguments("out", use_cpu=True, report_to=[]),
                train_dataset=rowdex.torch.Dataset(TOKENS, ["input_ids"]), data_collator=of_text,
                rowdex_options={"map": of_texts},
            ).get_train_dataloader()
        ),
    }  # fmt: skip
