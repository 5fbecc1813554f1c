"""transformers models with small random configurations: forward with labels, and a training step.

    python benchmarks/coverage/transformers_models.py [--backend native|aot_eager|eager] [--peer] [-k WORD] [-v]

``--peer`` also counts the graph breaks that torch.compile reports for the same call.
"""
from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from typing import Any

import torch
from cases import Case, parser, run_list

BATCH, LENGTH, WORDS, WIDTH = 2, 16, 99, 32
SMALL = {"vocab_size": WORDS, "hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
         "max_position_embeddings": 64}
GROUPED = SMALL | {"num_key_value_heads": 2}
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SEQUENCE = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 64,
            "decoder_ffn_dim": 64, "d_model": WIDTH, "vocab_size": WORDS, "decoder_start_token_id": 2} | TOKENS
PICTURE = {"image_size": 32, "patch_size": 8, "num_channels": 3, "hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 4,
           "intermediate_size": 64}

RESIDUAL = {"model_type": "resnet", "embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic",
            "out_features": ["stage2"]}

Inputs = Callable[[], dict[str, Any]]


def tokens() -> torch.Tensor:
    return torch.randint(3, WORDS, (BATCH, LENGTH))


def classified() -> dict[str, Any]:
    return {"input_ids": tokens(), "attention_mask": torch.ones(BATCH, LENGTH, dtype=torch.long), "labels": torch.tensor([0, 1])}


def language() -> dict[str, Any]:
    ids = tokens()
    return {"input_ids": ids, "attention_mask": torch.ones(BATCH, LENGTH, dtype=torch.long), "labels": ids.clone()}


def cached() -> dict[str, Any]:
    return language() | {"use_cache": True}


def sequence_pair() -> dict[str, Any]:
    return {"input_ids": tokens(), "labels": tokens()}


def picture() -> dict[str, Any]:
    return {"pixel_values": torch.randn(BATCH, 3, 32, 32), "labels": torch.tensor([0, 1])}


def picture_and_text() -> dict[str, Any]:
    return {"input_ids": tokens(), "pixel_values": torch.randn(BATCH, 3, 32, 32), "return_loss": True}


def speech() -> dict[str, Any]:
    return {"input_features": torch.randn(BATCH, 8, 32), "labels": tokens()}


def sound() -> dict[str, Any]:
    return {"input_values": torch.randn(BATCH, 400), "labels": torch.tensor([0, 1])}


def segments() -> dict[str, Any]:
    return {"pixel_values": torch.randn(BATCH, 3, 64, 64), "labels": torch.randint(0, 3, (BATCH, 64, 64))}


def objects() -> dict[str, Any]:
    """Pictures, the one with two objects in it, the other with one; the loss that compares objects needs scipy: no labels without it."""
    pictures = {"pixel_values": torch.randn(BATCH, 3, 64, 64), "pixel_mask": torch.ones(BATCH, 64, 64, dtype=torch.long)}
    if importlib.util.find_spec("scipy") is None:
        return pictures
    boxes = torch.rand(2, 4) * 0.5 + 0.25
    return pictures | {"labels": [{"class_labels": torch.tensor([0, 2]), "boxes": boxes}, {"class_labels": torch.tensor([1]), "boxes": boxes[:1]}]}


# name, configuration class, model class, configuration, inputs
MODELS: tuple[tuple[str, str, str, dict[str, Any], Inputs], ...] = (
    ("bert", "BertConfig", "BertForSequenceClassification", SMALL, classified),
    ("gpt2", "GPT2Config", "GPT2LMHeadModel", {"vocab_size": WORDS, "n_embd": WIDTH, "n_layer": 2, "n_head": 4, "n_positions": 64}, language),
    ("llama", "LlamaConfig", "LlamaForCausalLM", GROUPED, language),
    ("t5", "T5Config", "T5ForConditionalGeneration",
     {"vocab_size": WORDS, "d_model": WIDTH, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0}, sequence_pair),
    ("distilbert", "DistilBertConfig", "DistilBertForSequenceClassification",
     {"vocab_size": WORDS, "dim": WIDTH, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "max_position_embeddings": 64}, classified),
    ("roberta", "RobertaConfig", "RobertaForSequenceClassification", SMALL, classified),
    ("albert", "AlbertConfig", "AlbertForSequenceClassification", SMALL | {"embedding_size": 16}, classified),
    ("electra", "ElectraConfig", "ElectraForSequenceClassification", SMALL | {"embedding_size": 16}, classified),
    ("gpt_neox", "GPTNeoXConfig", "GPTNeoXForCausalLM", SMALL, language),
    ("opt", "OPTConfig", "OPTForCausalLM",
     {"vocab_size": WORDS, "hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 64, "max_position_embeddings": 64,
      "word_embed_proj_dim": WIDTH} | TOKENS, language),
    ("mistral", "MistralConfig", "MistralForCausalLM", GROUPED | {"sliding_window": 8}, language),
    ("qwen2", "Qwen2Config", "Qwen2ForCausalLM", GROUPED, language),
    ("gemma2", "Gemma2Config", "Gemma2ForCausalLM", GROUPED | {"head_dim": 8, "sliding_window": 8}, language),
    ("phi", "PhiConfig", "PhiForCausalLM", SMALL, language),
    ("bart", "BartConfig", "BartForConditionalGeneration", SEQUENCE | {"max_position_embeddings": 64}, sequence_pair),
    ("marian", "MarianConfig", "MarianMTModel", SEQUENCE | {"max_position_embeddings": 64}, sequence_pair),
    ("vit", "ViTConfig", "ViTForImageClassification", PICTURE, picture),
    ("clip", "CLIPConfig", "CLIPModel",
     {"text_config": SMALL | {"eos_token_id": 2, "pad_token_id": 1, "bos_token_id": 0}, "vision_config": PICTURE, "projection_dim": 16},
     picture_and_text),
    ("whisper", "WhisperConfig", "WhisperForConditionalGeneration",
     SEQUENCE | {"num_mel_bins": 8, "max_source_positions": 16, "max_target_positions": 64}, speech),
    ("wav2vec2", "Wav2Vec2Config", "Wav2Vec2ForSequenceClassification",
     {"hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "conv_dim": (16, 16), "conv_stride": (5, 2),
      "conv_kernel": (10, 3), "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2,
      "mask_time_prob": 0.0}, sound),
    ("segformer", "SegformerConfig", "SegformerForSemanticSegmentation",
     {"depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 24, 32], "num_attention_heads": [1, 2, 3, 4], "decoder_hidden_size": 16, "num_labels": 3},
     segments),
    ("detr", "DetrConfig", "DetrForObjectDetection",
     {k: v for k, v in SEQUENCE.items() if k.startswith(("encoder", "decoder_", "d_model")) and k != "decoder_start_token_id"}
     | {"num_queries": 5, "num_labels": 3, "backbone_config": RESIDUAL}, objects),
    ("mamba", "MambaConfig", "MambaForCausalLM", {"vocab_size": WORDS, "hidden_size": WIDTH, "num_hidden_layers": 2, "state_size": 4}, lambda: {
        k: v for k, v in language().items() if k != "attention_mask"}),
)


def cases() -> list[Case]:
    return [_case(*model, training) for model in MODELS for training in (False, True)]


def _case(name: str, config: str, model: str, configuration: dict[str, Any], inputs: Inputs, training: bool) -> Case:
    def make() -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        import transformers

        torch.manual_seed(0)
        made = getattr(transformers, model)(getattr(transformers, config)(**configuration))
        return made.train(training), (), inputs()

    options = {"training": True} if training else {}
    return Case(f"{name}.{'train' if training else 'eval'}", make, training=training, options=options, tolerance=(1e-3, 1e-4), compare_breaks=True)


if __name__ == "__main__":
    import transformers  # noqa: F401  (once, before the children are forked)

    sys.exit(any(o.kind != "equal" for o in run_list("transformers", cases(), parser(__doc__).parse_args())))
