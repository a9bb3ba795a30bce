"""What a Worker's variables say."""

from types import SimpleNamespace

from moorage.edge.settings import read


def test_a_deployment_without_variables_has_the_defaults() -> None:
    settings = read(SimpleNamespace(MOORAGE_ROOT_TOKEN="root")).settings
    assert (settings.runners, settings.derivation_keys, settings.otlp) == (32, ("root",), None)


def test_a_number_of_runners_counts_only_in_its_bounds() -> None:
    counts = {
        told: read(SimpleNamespace(MOORAGE_RUNNERS=told)).settings.runners for told in ("8", "0", "-1", "many", "99999")
    }
    assert counts == {"8": 8, "0": 32, "-1": 32, "many": 32, "99999": 32}


def test_derivation_keys_stand_between_commas_and_are_secrets() -> None:
    settings = read(SimpleNamespace(MOORAGE_ROOT_TOKEN="root", MOORAGE_DERIVATION_KEYS="new, old,")).settings
    assert settings.derivation_keys == ("new", "old", "root")
    assert set(settings.secrets) == {"root", "new", "old"}
    assert "old" not in repr(settings)


def test_traces_go_where_opentelemetrys_own_variables_say() -> None:
    general = read(SimpleNamespace(OTEL_EXPORTER_OTLP_ENDPOINT="https://otel.example.test/", OTEL_SERVICE_NAME="shop"))
    assert general.settings.otlp is not None
    assert (general.settings.otlp.url, general.settings.otlp.service) == ("https://otel.example.test/v1/traces", "shop")
    own = read(
        SimpleNamespace(
            OTEL_EXPORTER_OTLP_ENDPOINT="https://otel.example.test",
            OTEL_EXPORTER_OTLP_TRACES_ENDPOINT="https://traces.example.test/in",
            OTEL_EXPORTER_OTLP_HEADERS="Authorization=Bearer%20abc, x-tenant=7, broken",
        )
    ).settings
    assert own.otlp is not None
    assert own.otlp.url == "https://traces.example.test/in"
    assert own.otlp.headers == {"authorization": "Bearer abc", "x-tenant": "7"}
    assert "Bearer abc" in own.secrets
    assert "Bearer" not in repr(own)
