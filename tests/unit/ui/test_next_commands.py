from bootstrap.ui.layout import NextCommands, what_next


def test_everything_is_aligned():
    following = NextCommands(
        box="vast-5",
        run="homework",
        attach="boxstrap attach --host vast-5",
        follow="boxstrap logs -f --host vast-5",
        code="boxstrap code --host vast-5",
        fetch=["scp -r vast-5:/workspace/hw/out .", "scp vast-5:/workspace/hw/log ."],
        down="boxstrap down --host vast-5",
        destroy_at="https://console.example/instances",
        price=0.42,
    )
    assert what_next(following) == (
        "vast-5: run homework: running\n"
        "\n"
        "  attach   boxstrap attach --host vast-5\n"
        "  follow   boxstrap logs -f --host vast-5\n"
        "  VS Code  boxstrap code --host vast-5\n"
        "  fetch    scp -r vast-5:/workspace/hw/out .\n"
        "  fetch    scp vast-5:/workspace/hw/log .\n"
        "\n"
        "still billing $0.42 an hour: give it back with boxstrap down --host vast-5, "
        "or destroy it at https://console.example/instances"
    )


def test_what_is_not_there_is_left_out():
    assert what_next(NextCommands(box="local")) == "local: set up"
    assert what_next(NextCommands(box="b", down="boxstrap down")) == (
        "b: set up\n\nstill billing: give it back with boxstrap down, "
        "or destroy it where you rented it"
    )
    short = NextCommands(
        box="b",
        run="r",
        state="failed (exit 1)",
        down="boxstrap down",
        destroy_at="the provider's page",
    )
    assert what_next(short) == (
        "b: run r: failed (exit 1)\n\nstill billing: give it back with boxstrap down, "
        "or destroy it at the provider's page"
    )
