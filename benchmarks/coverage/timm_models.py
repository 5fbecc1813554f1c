"""timm models with random weights, on the smallest input each takes: eval and one training step (on the smallest whose result float32 holds: batch
norm over the two values that are left of 96 x 96 pixels in inception_v3 gives their signs, and float32 guesses them).

    python benchmarks/coverage/timm_models.py [--backend native|aot_eager|eager] [-k WORD] [-v]
"""
from __future__ import annotations

import copy
import sys
from typing import Any

import torch
from cases import Case, parser, run_list

MODELS = (
    "resnet18", "resnet50", "mobilenetv3_small_100", "efficientnet_b0", "convnext_atto", "vit_tiny_patch16_224", "deit_tiny_patch16_224",
    "swin_tiny_patch4_window7_224", "mixer_s32_224", "regnetx_002", "densenet121", "ghostnet_100", "mobilevit_xxs", "poolformer_s12",
    "xcit_nano_12_p16_224", "res2net50_26w_4s", "repvgg_a0", "inception_v3", "eva02_tiny_patch14_224", "maxvit_rmlp_pico_rw_256",
)
SIZES = (64, 96, 128, 224, 256, 299)
TOLERANCE = (2e-3, 2e-3)


def cases() -> list[Case]:
    return [_case(name, training) for name in MODELS for training in (False, True)]


def _case(name: str, training: bool) -> Case:
    def make() -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        import timm

        torch.manual_seed(0)
        model = timm.create_model(name, pretrained=False, num_classes=10).train(training)
        for size in SIZES:
            image = torch.randn(2, 3, size, size)
            try:
                steady = _is_steady(model.train(training), image)
            except (AssertionError, RuntimeError):
                continue
            if steady:
                return model, (image,), {}
        raise LookupError(f"{name} takes none of the sizes {SIZES}")

    return Case(f"{name}.{'train' if training else 'eval'}", make, training=training, tolerance=TOLERANCE, exact=True, compare_breaks=True)


def _is_steady(model: torch.nn.Module, image: torch.Tensor) -> bool:
    """Whether the model's results in float32 are near those in float64."""
    with torch.no_grad():
        torch.manual_seed(1)
        single = copy.deepcopy(model)(image)
        torch.manual_seed(1)
        double = copy.deepcopy(model).double()(image.double())
    return bool((single - double).norm() <= 1e-3 * double.norm())


if __name__ == "__main__":
    sys.exit(any(o.kind != "equal" for o in run_list("timm", cases(), parser(__doc__).parse_args())))
