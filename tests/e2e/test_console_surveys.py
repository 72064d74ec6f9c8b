"""Parameters that surveys need, filled in by hand: the request that is sent, and its result."""

import csv
import io
import re
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.e2e.console import Console, console
from tests.survey_runs import KNOWN, RUNS, survey

pytestmark = pytest.mark.browser

ROLES = {
    "household": "household", "size": "other", "area": "known", "age": "known", "sex": "known",
    "income": "sensitive", "start": "other", "end": "other", "weight": "weight",
}  # fmt: skip


def as_csv() -> str:
    sink = io.StringIO()
    rows = survey()
    writer = csv.DictWriter(sink, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return sink.getvalue()


@pytest.fixture
def surveyed(browser: Browser, client: httpx.Client) -> Any:
    """A tab, and the id of the survey's buffer, whose roles are set."""
    with console(browser, client) as tab:
        table = tab.upload("survey.csv", as_csv())
        for name, role in ROLES.items():
            tab.page.get_by_label(name, exact=True).select_option(role)
        yield tab, table


def tick(within: Locator | Page, group: str, *names: str) -> None:
    """Tick exactly these fields of a group of checkboxes, in this order."""
    boxes = within.get_by_role("group", name=re.compile(rf"^{group}(\W+needed)?$"))
    ticked = boxes.get_by_role("checkbox", checked=True)
    while ticked.count():
        ticked.first.uncheck()
    for name in names:
        boxes.get_by_role("checkbox", name=re.compile(rf"^{name} ")).check()


def sent(tab: Console, service: str, button: str) -> dict[str, Any]:
    """Press a button of the form; return the parameters of the request, after its response."""
    with tab.page.expect_request(lambda each: each.url.endswith(f"/v1/services/{service}")) as caught:
        tab.page.get_by_role("button", name=button, exact=True).click()
    request = caught.value
    answer = request.response()
    assert answer is not None
    assert answer.ok, answer.text()
    body = request.post_data_json
    assert body is not None
    found: dict[str, Any] = body["parameters"]
    return found


def test_rows_at_risk_are_swapped_and_the_release_attacked(
    surveyed: tuple[Console, str], client: httpx.Client
) -> None:
    """The nested form of the selection is filled in; the attack computes who had to move."""
    tab, table = surveyed
    page = tab.page
    tab.open(f"tables/{table}/DSWAP")
    household = page.get_by_label("Household", exact=True)
    expect(household).not_to_have_value("")  # suggested by the role
    household.select_option("")
    tick(page, "Swap fields", "income")
    page.get_by_label("Rate", exact=True).fill("0.3")
    risk = page.get_by_role("group", name="Risk", exact=True)
    tick(risk, "Key fields", *KNOWN)
    risk.get_by_label("Weight", exact=True).select_option(label="weight (float64)")
    risk.get_by_label("Least group size (k)").fill("100")
    assert sent(tab, "DSWAP", "Run") == RUNS["risk, DSWAP"][1]
    tab.ended()
    report = page.frame_locator("iframe.report")
    expect(report.get_by_text("risk deciles", exact=False).first).to_be_attached()
    page.get_by_role("link", name="Attack this release").click()
    page.get_by_label("Attacks", exact=True).fill("30")
    page.get_by_role("button", name="Run", exact=True).click()
    tab.ended()
    path = f"/v1/jobs/{page.url.rpartition('/')[2]}/report"
    found = client.get(path).raise_for_status().json()["attacks"]["reidentification"]
    assert found["income"]["details"]["selection_by_risk"] is True


def test_the_other_forms_send_what_is_filled_in(surveyed: tuple[Console, str]) -> None:
    """Permutation with a target, households, weight classes, checks with a repair: each is previewed."""
    tab, table = surveyed
    page = tab.page
    plan = page.get_by_role("region", name="Preview")

    def begin(service: str) -> None:
        tab.open(f"tables/{table}/{service}")
        if service != "RSWAP":
            page.get_by_label("Household", exact=True).select_option("")
        page.locator("summary", has_text="More, with defaults").click()

    begin("DDSWAP")
    tick(page, "Swap fields", "income")
    tick(page, "Control field", "age")
    page.get_by_label("Block size").fill("10")
    page.get_by_role("radio", name="permutation").check()
    page.get_by_label("Largest epsilon").fill("4")
    assert sent(tab, "DDSWAP", "Preview") == RUNS["target epsilon"][1]
    expect(plan).to_contain_text("Epsilon")

    begin("RSWAP")
    tick(page, "Hierarchy", "area")
    page.get_by_role("button", name="Add to similar").click()
    tick(page.get_by_role("group", name="Similar", exact=True), "Entry", "size")
    tick(page, "Risk fields", *KNOWN)
    page.get_by_label("Least group size (k-anonymity)").fill("2")
    page.get_by_label("Swap rate").fill("0.4")
    assert sent(tab, "RSWAP", "Preview") == RUNS["record swapping"][1]
    plan.wait_for()

    begin("CDSWAP")
    tick(page, "Swap fields", "income")
    tick(page, "Control field", "weight", "area")
    classifier = page.get_by_role("group", name="Classifier", exact=True)
    classifier.get_by_role("combobox").first.select_option(label="a list")
    for kind in ("classes of equal size", "identity"):
        classifier.get_by_role("button", name=re.compile("^Add to")).click()
        classifier.get_by_role("combobox").last.select_option(label=kind)
    classifier.get_by_label("Quantiles").fill("3")
    assert sent(tab, "CDSWAP", "Preview") == RUNS["weight classes"][1]
    plan.wait_for()

    begin("DSWAP")
    tick(page, "Swap fields", "end")
    page.get_by_label("Checks, one a line").fill("start <= end")
    page.get_by_role("radio", name="repair").check()
    assert sent(tab, "DSWAP", "Preview") == RUNS["repair"][1]
    plan.wait_for()


def test_a_comparison_weighs_households_and_domains(
    surveyed: tuple[Console, str], client: httpx.Client
) -> None:
    """Two rates of record swapping, by the totals of the domains that the weights estimate."""
    tab, table = surveyed
    page = tab.page
    tab.open(f"tables/{table}/compare")
    page.get_by_role("checkbox", name="Targeted record swapping RSWAP").check()
    tick(page, "Hierarchy", "area")
    # Equal sizes keep the persons by area: domains that change by a few persons would be withheld.
    page.locator("summary", has_text="More, with defaults: similar").click()
    page.get_by_role("button", name="Add to similar").click()
    tick(page.get_by_role("group", name="Similar", exact=True), "Entry", "size")
    page.get_by_role("button", name="Add a parameter").click()
    page.get_by_role("combobox", name="Parameter").select_option("swap_rate")
    page.get_by_label("Values, one a line").fill("0.1\n0.5")
    page.get_by_text("how risk and utility are measured").click()
    page.get_by_label("Risk", exact=True).select_option("changed_share")
    page.get_by_label("Utility", exact=True).select_option("domain_totals.change_in_errors")
    tick(page, "Domain fields", "area")
    tick(page, "Key fields")  # suggested by the roles, and refused since neither figure uses them
    page.get_by_role("button", name="Run", exact=True).click()
    tab.ended()
    found = client.get(f"/v1/jobs/{page.url.rpartition('/')[2]}/report").raise_for_status().json()["frontier"]
    few, many = found["points"]
    assert [point["parameters"]["swap_rate"] for point in (few, many)] == [0.1, 0.5]
    assert few["parameters"]["household"] == "household"
    assert few["risk"] < many["risk"]  # the changed share, of which more is better
    assert found["utility"] == "domain_totals.change_in_errors"
