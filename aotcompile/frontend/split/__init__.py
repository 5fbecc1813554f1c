"""Splits a function's source at its graph breaks: an extract-method refactoring.

    def forward(self, x):                                       def _r0_eager(self, x):
        h = self.fc(x)                                              h = self.fc(x)
        score = h.mean()                                            score = h.mean()
        print("score", score.tolist())                              return h, score
        return h * score                                        def _r1_eager(h, score):
                                                      ->            return h * score
                                                                def forward(self, x):
                                                                    h, score = _r0(self, x)  # region 0: lines 2-3
                                                                    print("score", score.tolist())  # graph break AOT201: print (line 4)
                                                                    return _r1(h, score)  # region 1: line 5

The stages, one file each: `text` (libcst tree, positions) and `marks` (breaks on the tree) -> `statements` and `expressions` (pulled apart into
`items`) -> `flow` (liveness, boundness over the control flow; `names` of one statement) -> `plan` (which leaves become regions) -> `rewrite` (text).
"""
from aotcompile.frontend.split.split import function_text, split_function
from aotcompile.frontend.split.text import locate

__all__ = ["function_text", "locate", "split_function"]
