"""Metrics of a log: common ways of logging them, and lines without any."""

import math
import re
import subprocess
import sys
import time

import pytest

from bootstrap.onbox.metrics import LINE, find_metrics, newest, read_patterns
from bootstrap.profile.schema import as_row
from bootstrap.profile.values import METRIC
from tests.waiting import slowness

LINES = {
    "step 7 loss 0.5": {"step": 7, "loss": 0.5},
    "Epoch 3/10, Loss: 0.4321, Acc: 87.5%": {"epoch": 3, "loss": 0.4321, "acc": 87.5},
    # Keras, nanoGPT, Hugging Face's Trainer (old and new), torch's ImageNet example, tqdm.
    "391/391 [====] - 5s 12ms/step - loss: 0.42 - accuracy: 0.87 - val_loss: 0.5": {
        "loss": 0.42,
        "accuracy": 0.87,
        "val_loss": 0.5,
    },
    "step 20: train loss 4.28, val loss 4.27": {"step": 20, "train_loss": 4.28, "val_loss": 4.27},
    "iter 100: loss 2.4567, time 123.45ms, mfu 12.3%": {"step": 100, "loss": 2.4567},
    "{'loss': 0.42, 'learning_rate': 5e-05, 'epoch': 0.1}": {
        "loss": 0.42,
        "learning_rate": 5e-05,
        "epoch": 0.1,
    },
    "{'loss': '0.42', 'epoch': '0.1'}": {"loss": 0.42, "epoch": 0.1},
    "Epoch: [2][ 10/5005] Time 0.5 (0.6) Loss 6.9e+00 (7.0e+00) Acc@1 0.00 (0.1)": {
        "epoch": 2,
        "loss": 6.9,
        "acc@1": 0.0,
    },
    "Epoch 0: 100%|##| 391/391 [00:05<00:00, 72.1it/s, v_num=0, train_loss=0.42]": {
        "epoch": 0,
        "train_loss": 0.42,
    },
    '{"step": 100, "loss": 0.42, "tokens_per_sec": 1234.5}': {
        "step": 100,
        "loss": 0.42,
        "tokens_per_sec": 1234.5,
    },
    '{"trainLoss": 0.4, "power": 250}': {"trainloss": 0.4, "power": 250},
    '{"valAcc": 0.4}': {"valacc": 0.4},
    "{'testacc': 0.4, 'top1-acc': 0.5}": {"testacc": 0.4, "top1-acc": 0.5},
    '{"access": 3, "account": 4, "power": 250, "mapping": 1, "what": "loss"}': {},
    "{'accelerate_machine_rank': 0}": {},
    "2026-11-22 12:00:00 INFO step=100 loss=0.42 lr=1e-4": {"step": 100, "loss": 0.42, "lr": 1e-4},
    "\x1b[32mloss\x1b[0m: 0.4": {"loss": 0.4},
    "eval/loss: -inf": {"eval/loss": -math.inf},
    "lr_decay_iters: 5000": {},
    "2026-11-29,09:34:20 | INFO |   train_loss_ema_samples: 50000": {},
    "Overriding: learning_rate = 0.001": {},
    "min_lr: 6e-05, loss_scale: 1024": {},
    "{'num_workers': 4, 'max_steps': 600, 'learning_rate': 0.0005, 'weight_decay': 0.01}": {},
    "hyperparameters: lr0=0.01, lrf=0.01, momentum=0.937, warmup_epochs=3.0, iou_t=0.2": {},
    "Namespace(batch_size=64, steps=100, lr=1.0)": {},
    "step 3 loss 2.5 batch_size: 8": {"step": 3, "loss": 2.5},
    '{"step": 3, "batch_size": 8, "loss": 2.5}': {"step": 3, "batch_size": 8, "loss": 2.5},
    "Epoch: [0] lr: 0.1 loss: 6.9 (6.9) weight_decay: 0.05": {"epoch": 0, "lr": 0.1, "loss": 6.9},
    "exit code 3": {},
    "lossless 3": {},
    "loss: tensor(0.3)": {},
    "GPU 0 of 8 at port 8080": {},
    "step 3/10": {},
    "": {},
}


@pytest.mark.parametrize("line", LINES)
def test_metrics_are_found_in_a_log_line_in_each_common_way_of_logging(line: str) -> None:
    assert find_metrics(line) == LINES[line]
    # The box's grep must let the line through, or nothing is found in it.
    if LINES[line]:
        command = ["grep", "-ciE", LINE]
        grep = subprocess.run(command, input=line, text=True, capture_output=True, check=False)
        assert grep.stdout == "1\n" or "\x1b" in line


def test_a_loss_of_nan_in_a_log_line_is_read_as_a_metric() -> None:
    assert math.isnan(find_metrics("step 8 loss nan")["loss"])


def test_the_newest_metric_of_a_log_is_found_even_in_a_progress_bar() -> None:
    assert newest("loss 1\nsaved\nloss 2 of rank 0\nsaved x\n") == "loss 2 of rank 0"
    assert newest("  0%| loss=3\r 10%| loss=2\r 20%| loss=1") == "20%| loss=1"
    assert newest("nothing\n") == newest("") == ""


@pytest.mark.parametrize(
    ("pattern", "line", "found"),
    [
        ("score is {score}", "The score is   0.5!", {"score": 0.5}),
        ("[{step}] dice (val) {val/dice}", "[3] dice (val) 5e-1", {"step": 3, "val/dice": 0.5}),
        ("a|b.* {x}", "a|b.* 3", {"x": 3}),
        ("a|b.* {x}", "a 3", {}),
        ("score is {score}", "loss 3", {}),
    ],
)
def test_a_metric_pattern_of_the_profile_finds_its_values_in_a_log_line(
    pattern: str, line: str, found: dict[str, float]
) -> None:
    row = as_row(METRIC(pattern))
    assert find_metrics(line, read_patterns(row)) == found
    command = ["grep", "-ciE", row.partition("\t")[2]]
    grep = subprocess.run(command, input=line, text=True, capture_output=True, check=False)
    assert (grep.stdout, grep.stderr) == (f"{int(bool(found))}\n", "")


@pytest.mark.parametrize("pattern", ["no number", "{a}{b}", "{a", "{1}", "{a\tb}", "x" * 501])
def test_a_metric_pattern_without_a_valid_group_name_raises_an_error(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"a line of the log|control|too long"):
        METRIC(pattern)


def test_damaged_metric_patterns_saved_on_a_box_are_ignored() -> None:
    assert read_patterns("a\t(\nb\nc,d\t(x)\n\te\n") == []


@pytest.mark.skipif(sys.gettrace() is not None, reason="time counts")
def test_finding_metrics_in_a_hostile_line_takes_less_than_a_tenth_of_a_second() -> None:
    for hostile in ("loss_" * 9999, "train_" * 9999, "{" + "'a" * 9999, "loss " * 9999, "/" * 9999):
        took = list[float]()
        for _ in range(5):
            began = time.process_time()
            find_metrics(hostile)
            took.append(time.process_time() - began)
        assert min(took) < 0.1 * slowness(), re.escape(hostile[:20])
