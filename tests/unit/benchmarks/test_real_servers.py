from benchmarks.real_servers import capacity


def test_the_capacity_of_the_proxy_is_what_its_processor_time_allows() -> None:
    line = capacity(2_000, 0.5)
    assert "2,000 requests, each with 250 µs" in line
    assert line.endswith("at most 4,000 a second")
    assert capacity(0, 0.1) == "the proxy that adds 30 ms passed no request"
