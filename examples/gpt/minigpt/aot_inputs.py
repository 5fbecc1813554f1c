"""What aotcompile builds for: the functions and the inputs they will be called with. Read by the build only."""
import torch

from minigpt.model import GPT, GPTConfig
from minigpt.sampling import sample


def make_model():
    torch.manual_seed(0)
    return GPT(GPTConfig())


def training():
    """Batches of whole contexts with targets, in training mode."""
    model = make_model().train()
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(model.config.vocabulary, (4, model.config.block_size), generator=generator)
    targets = torch.randint(model.config.vocabulary, (4, model.config.block_size), generator=generator)
    return model, (tokens, targets)


def context():
    """One context of any length, in evaluation mode."""
    model = make_model().eval()
    return model, (torch.randint(model.config.vocabulary, (1, 24), generator=torch.Generator().manual_seed(2)),)


def generation():
    """The sampling loop: the context grows by a token each time round, until it is full and its oldest token is left out."""
    model, (tokens,) = context()
    long = torch.cat((tokens, tokens), dim=1)
    return [(sample, (model, tokens, -1), {"limit": 2}), (sample, (model, long, -1), {"limit": 2})]
