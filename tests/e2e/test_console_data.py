"""The data in the console: missing header, first rows, profiles, roles, copies, rows before and after."""

import gzip
import re
from pathlib import Path

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, FilePayload, expect

from tests.e2e.console import NOT_NEXT_TO_THE_PAGE, Console, console

pytestmark = pytest.mark.browser

SIZES = [1, 2, 2, 4] * 15
SURVEY = "nr,person,stratum,sex,age,income,sampling_weight\n" + "".join(
    f"{household + 700},{household}-{member},s{household % 3},{'fm'[(household + member) % 2]},"
    f"{20 + (household * 7 + member * 29) % 60},{1000 + household * 37 % 811 + member},"
    f"{50 + household % 9}.5\n"
    for household, size in enumerate(SIZES)
    for member in range(size)
)
ROWS = sum(SIZES)


def choose(tab: Console, name: str, content: bytes) -> None:
    """Choose a file on the first page, without waiting for its table."""
    tab.open()
    tab.page.get_by_label(re.compile("^A file")).set_input_files(
        FilePayload(name=name, mimeType="", buffer=content)
    )


@pytest.mark.parametrize("name", ["plain.csv", "packed.csv.gz"])
def test_a_missing_header_is_asked_for_before_the_upload(
    opened: Console, client: httpx.Client, name: str
) -> None:
    """Without a header no row is lost; with one, the first line stays the names."""
    content = b"39;State-gov;77516\n50;Private;83311\n38;Private;215646\n"
    content = gzip.compress(content) if name.endswith(".gz") else content
    page = opened.page
    choose(opened, name, content)
    question = page.get_by_role("region", name="Is the header missing?")
    expect(question).to_contain_text("it has a number (39) where a name is expected")
    expect(question).to_contain_text("39 | State-gov | 77516")
    assert not [url for url in opened.asked if "/v1/buffers" in url]
    no_header = page.get_by_role("button", name="There is no header")
    expect(no_header).to_be_focused()
    no_header.click()
    buffer = client.get(f"/v1/buffers/{opened.table()}").json()
    assert buffer["row_count"] == 3
    assert [field["name"] for field in buffer["fields"]] == ["column_1", "column_2", "column_3"]
    choose(opened, name, content)
    page.get_by_role("button", name="The first line has the names").click()
    buffer = client.get(f"/v1/buffers/{opened.table()}").json()
    assert [field["name"] for field in buffer["fields"]] == ["39", "State-gov", "77516"]
    expect(page.locator(".warning", has_text="look like data")).to_contain_text("39, 77516")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_a_csv_in_utf_16_is_read_by_its_byte_order_mark(opened: Console, encoding: str) -> None:
    choose(opened, "unicode.csv", "\ufeffWert;größe\n1;2\n3;4\n".encode(encoding))
    opened.table()
    expect(opened.page.locator(".fields label")).to_have_text(["Wert", "größe"])


def test_a_csv_in_another_encoding_leads_to_the_choice_of_it(opened: Console) -> None:
    content = "größe,income\n1,2\n".encode("iso-8859-1")
    choose(opened, "latin.csv", content)
    expect(opened.page.get_by_role("alert")).to_contain_text("correct it there and send the file again")
    opened.page.get_by_label("Encoding").select_option("iso-8859-1")
    opened.page.get_by_role("button", name="Send the file again").click()
    opened.table()
    expect(opened.page.locator(".fields label").first).to_have_text("größe")


def test_a_file_that_has_changed_is_not_taken_for_a_service_that_is_gone(
    opened: Console, tmp_path: Path
) -> None:
    """The browser stops the upload of a file that was written after it was chosen."""
    page = opened.page
    path = tmp_path / "numbers.csv"
    path.write_text("1,2\n3,4\n")
    opened.open()
    page.get_by_label(re.compile("^A file")).set_input_files(path)
    no_header = page.get_by_role("button", name="There is no header")
    no_header.wait_for()
    path.write_text("1,2\n3,4\n5,6\n")
    no_header.click()
    expect(page.get_by_role("alert")).to_contain_text("changed, moved or deleted after it was chosen")


@pytest.mark.parametrize("name", ["table", "table.json", "table.constructor"])
def test_a_file_of_another_kind_is_refused_in_words(opened: Console, name: str) -> None:
    choose(opened, name, b"[]")
    expect(opened.page.get_by_role("alert")).to_contain_text("Export the table as CSV or Parquet")
    assert not [url for url in opened.asked if "/v1/buffers" in url]


def test_an_error_has_the_names_of_fields_as_they_are(opened: Console) -> None:
    """Also one that a parameter has, too, and one with a mark that would reverse the rest of the sentence."""
    opened.open()
    for name, shown in (("target", "target"), ("age\u202e", "age\\u{202e}")):
        file = FilePayload(name="twice.csv", mimeType="", buffer=f"{name},{name}\n1,2\n".encode())
        opened.page.get_by_label(re.compile("^A file")).set_input_files(file)
        expect(opened.page.get_by_role("alert")).to_contain_text(f"field '{shown}' is there 2 times")


def test_decimal_commas_are_numbers(opened: Console, client: httpx.Client) -> None:
    """If the user says so; separators of thousands stay text, which the page says."""
    rows = "".join(f"{row};{row}.{100 + row},50;{row},25\r\n" for row in range(1, 30))
    choose(opened, "haushalte.csv", f"Alter;Umsatz;Einkommen\r\n{rows}".encode())
    opened.page.get_by_role("button", name="Yes: 1,25 is a number").click()
    buffer = client.get(f"/v1/buffers/{opened.table()}").json()
    assert [field["type"] for field in buffer["fields"]] == ["int64", "string", "float64"]
    expect(opened.page.locator(".warning").first).to_contain_text("Umsatz looks like numbers, but is text")


@pytest.mark.parametrize(
    ("text", "delimiter"),
    [
        ('"Einkommen, brutto, jährlich";"Ort"\n1;a\n', ";"),
        ('"a ""b;"" c;d;e",f\n', ","),
        ('"a\nb;c;d",e,f\n', ","),
        ('"a"\t"b,c,d"\n', "\t"),
        ('size in ";b;c\n"', ";"),
        ("a\n", ","),
    ],
)
def test_a_delimiter_in_a_quoted_name_is_none(opened: Console, text: str, delimiter: str) -> None:
    script = "async text => (await import('./console/header_check.js')).delimiterOf(text)"
    assert opened.evaluate(script, text) == delimiter


def test_a_result_is_downloaded_as_the_table_was_written(opened: Console) -> None:
    """A copy of the table is known to be written in the same way; another choice is possible."""
    page = opened.page
    rows = "".join(f"Ort {row % 3};{row},25;7\r\n" for row in range(30))
    choose(opened, "haushalte.csv", f"Ort;Einkommen;rest\r\n{rows}".encode())
    page.get_by_role("button", name="Yes: ").click()
    first = opened.table()
    page.get_by_label("rest", exact=True).select_option(label="Leave it out")
    page.get_by_role("button", name="Make the changed table").click()
    page.wait_for_url(lambda url: "tables" in url and first not in url)
    opened.shown()
    opened.open(f"tables/{opened.table()}/DSWAP")
    page.get_by_role("button", name="Run", exact=True).click()
    opened.ended()
    for words, line in (("", r"Ort \d;\d+,25"), ("tabs and 1234.5", r"Ort \d\t\d+\.25")):
        if words:
            page.get_by_label("Cells and numbers of the CSV").select_option(label=words)
        with page.expect_download() as download:
            page.get_by_role("button", name="Result as CSV").click()
        lines = Path(download.value.path()).read_text().splitlines()
        assert re.fullmatch(line, lines[1])


@pytest.mark.parametrize(
    ("cells", "found"),
    [
        (["a,b", "12,5", "1.234"], "12,5"),
        (["1,234", "7"], None),  # perhaps thousands
        (["12,5", "0.5"], None),
        (["1.234,5", "13.04.1942", None], None),
        (["0,125"], "0,125"),
    ],
)
def test_a_decimal_comma_is_asked_for_if_it_may_be_one(
    opened: Console, cells: list[str | None], found: str | None
) -> None:
    opened.open()
    script = "async cells => (await import('./console/header_check.js')).decimalCommaOf(cells)"
    assert opened.evaluate(script, cells) == found


def test_a_survey_has_its_roles_and_their_reasons(opened: Console) -> None:
    """A household number is found by its rows, not by its name, and is nothing to protect."""
    page = opened.page
    table = opened.upload("survey.csv", SURVEY)
    roles = {
        "nr": ("household", "rows with the same value are adjacent, at most 4 of them"),
        "person": ("identifier", "nearly every row has a different value"),
        "stratum": ("stratum", "its name has “stratum”"),
        "sex": ("known", "its name has “sex”"),
        "income": ("sensitive", "its name has “income”"),
        "sampling_weight": ("weight", "its name has “sampling_weight”"),
    }
    for name, (role, why) in roles.items():
        expect(page.get_by_label(name, exact=True)).to_have_value(role)
        field = page.locator("ul.fields > li").filter(has=page.get_by_label(name, exact=True))
        expect(field.locator("small")).to_contain_text(why)
    warning = page.locator(".warning", has_text="no service leaves them out")
    expect(warning).to_contain_text("nr, person.")
    opened.open(f"tables/{table}/CDSWAP")
    control = page.get_by_role("group", name=re.compile("^Control field"))
    expect(control.get_by_role("checkbox", name="stratum")).to_be_checked()
    swap = page.get_by_role("group", name="Swap fields", exact=True)
    expect(swap.get_by_role("checkbox", name="income")).to_be_checked()
    expect(swap.get_by_role("checkbox", name="nr int64")).not_to_be_checked()


def test_the_services_are_reached_without_a_walk_over_all_fields(opened: Console) -> None:
    choose(opened, "wide.csv", (",".join(f"f{at}" for at in range(60)) + "\n").encode())
    opened.table()
    opened.page.get_by_role("link", name="choose what should be done").click()
    heading = opened.page.get_by_role("heading", name="What should be done?")
    expect(heading).to_be_focused()
    expect(heading).to_be_in_viewport()


def test_the_rows_and_figures_of_the_whole_table_are_shown(opened: Console) -> None:
    page = opened.page
    opened.upload("survey.csv", SURVEY)
    rows = page.get_by_role("table", name="The first 10 rows")
    assert rows.locator("tbody tr").count() == 10
    assert rows.locator("tbody tr").first.locator("td").all_inner_texts() == SURVEY.splitlines()[1].split(",")
    page.get_by_text(f"Figures and suggested roles are of all {ROWS} rows.").wait_for()
    ages = {line.split(",")[4] for line in SURVEY.splitlines()[1:]}
    age = page.locator("ul.fields > li").filter(has=page.get_by_label("age", exact=True))
    expect(age).to_contain_text(f"{len(ages)} different values · no nulls · {min(ages)} to {max(ages)}")
    label = age.get_by_role("img").get_attribute("aria-label")
    assert label is not None
    assert re.match(r"Histogram of age: 12 bins from 2\d to \d+; most values", label), label
    sex = page.locator("ul.fields > li").filter(has=page.get_by_label("sex", exact=True))
    counts = [line.split(",")[3] for line in SURVEY.splitlines()[1:]]
    shown = {item.split("\n")[0]: int(item.split("\n")[-1]) for item in sex.locator("li").all_inner_texts()}
    assert shown == {"f": counts.count("f"), "m": counts.count("m")}


def test_a_table_is_copied_with_other_types_and_without_fields(opened: Console, client: httpx.Client) -> None:
    """The copy keeps the corrected roles; a value that does not fit is reported with its row."""
    page = opened.page
    table = opened.upload("survey.csv", SURVEY.replace(",55.5", ",n/a", 1))
    page.get_by_label("person", exact=True).select_option("drop")
    page.get_by_label("age", exact=True).select_option("sensitive")
    page.get_by_label("Type of nr").select_option("string")
    page.get_by_label("Type of sampling_weight").select_option("float64")
    make = page.get_by_role("button", name="Make the changed table")
    make.click()
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("field 'sampling_weight', row")
    expect(alert).to_be_focused()
    page.get_by_label("Texts that mean a missing value").fill("n/a")
    make.click()
    expect(page.get_by_label("person", exact=True)).to_have_count(0)
    opened.shown()
    copy = opened.table()
    assert copy != table
    fields = {field["name"]: field["type"] for field in client.get(f"/v1/buffers/{copy}").json()["fields"]}
    assert fields == {
        "nr": "string", "stratum": "string", "sex": "string", "age": "int64", "income": "int64",
        "sampling_weight": "float64",
    }  # fmt: skip
    expect(page.get_by_label("age", exact=True)).to_have_value("sensitive")
    weight = page.locator("ul.fields > li").filter(has=page.get_by_label("sampling_weight", exact=True))
    expect(weight).to_contain_text("1 null")
    assert len(client.get(f"/v1/buffers/{table}").json()["fields"]) == 7


def test_rows_are_shown_before_and_after(opened: Console, client: httpx.Client) -> None:
    """A preview has those of a trial run; the result has those of the two tables."""
    page = opened.page
    table = opened.upload("survey.csv", SURVEY)
    opened.open(f"tables/{table}/CDSWAP")
    page.get_by_role("button", name="Preview").click()
    plan = page.get_by_role("region", name="Preview")
    expect(plan).to_contain_text(f"Made with the first {ROWS} rows and a seed that is thrown away")
    assert plan.get_by_role("table", name="Rows of the trial run").locator("tbody tr").count() == 20
    expect(plan).not_to_contain_text("The groups of the run are larger")
    script = """async rows => (await import('./console/views/before_after.js'))
        .trialOf({fields: [], rows: [], rows_read: 1000}, rows)[1].textContent"""
    larger = "The groups of the run are larger, too: a row without a partner here may have one in the run."
    assert [larger in opened.evaluate(script, rows) for rows in (1000, 1001)] == [False, True]
    page.get_by_role("button", name="Run", exact=True).click()
    opened.ended()
    job = page.url.rpartition("/")[2]
    result = page.get_by_role("region", name="Rows before and after")
    release = client.get(f"/v1/jobs/{job}/rows", headers={"accept": "text/csv"}).text.splitlines()[1:]
    before, after = ([line.split(",")[5] for line in lines] for lines in (SURVEY.splitlines()[1:], release))
    changed = [row for row in range(ROWS) if before[row] != after[row]]
    expect(result).to_contain_text(f"Changed in {ROWS} rows: income {len(changed)}")
    result.get_by_label("Only rows with a change").check()
    rows = result.get_by_role("table", name="The first rows with a change").locator("tbody tr")
    expect(rows).to_have_count(20)
    for at, row in enumerate(changed[:20]):
        assert rows.nth(at).locator("th").inner_text() == str(row + 1)
        assert rows.nth(at).locator("del .name").inner_text() == before[row]
        assert rows.nth(at).locator("ins .name").inner_text() == after[row]
    result.get_by_text("Cross two fields").click()
    result.get_by_label("Count").select_option(label="stratum")
    result.get_by_label("by", exact=True).select_option(label="sex")
    result.get_by_role("button", name="Count pairs").click()
    cross = result.locator("table.cross")
    pairs = [tuple(line.split(",")[2:4]) for line in SURVEY.splitlines()[1:]]
    for line in cross.locator("tbody tr").all():
        stratum = line.locator("th").inner_text()
        heads = cross.locator("thead th").all_inner_texts()
        cells = line.locator("td").all_inner_texts()
        assert [int(cell) for cell in cells] == [pairs.count((stratum, head)) for head in heads]


def test_the_data_fit_a_phone(browser: Browser, client: httpx.Client) -> None:
    """At 390 pixels nothing is wider than the page, a ticked field is in sight, and axe finds nothing."""
    with console(browser, client, width=390) as tab:
        table = tab.upload("survey.csv", SURVEY.replace("income", "income_" + "x" * 60))
        page = tab.page
        page.get_by_label("person", exact=True).select_option("drop")
        assert page.evaluate(NOT_NEXT_TO_THE_PAGE)
        tab.open_everything()
        found = Axe().run(page, options={"resultTypes": ["violations"]})
        assert [each["id"] for each in found.response["violations"]] == []
        tab.open(f"tables/{table}/CDSWAP")
        ticked = page.get_by_role("group", name="Swap fields", exact=True).locator("input:checked")
        assert ticked.evaluate(
            """(box) => {
              const shown = [box, box.closest(".fields-to-tick")];
              const [inner, outer] = shown.map((one) => one.getBoundingClientRect());
              return inner.top >= outer.top && inner.bottom <= outer.bottom;
            }"""
        )
        wide = [",".join(str(row * 37 % (100 + place)) for place in range(9)) for row in range(60)]
        names = ",".join(f"income_{place}" for place in range(9))
        table = tab.upload("wide.csv", "\n".join([names, *wide, ""]))
        tab.open(f"tables/{table}/DSWAP")
        page.get_by_role("button", name="Preview").click()
        page.get_by_role("region", name="Preview").wait_for()
        assert page.evaluate(NOT_NEXT_TO_THE_PAGE)


def test_the_data_are_prepared_by_keyboard_alone(opened: Console, client: httpx.Client) -> None:
    """Header, role, type, missing values and copy, then rows before and after: no mouse, no lost focus."""
    page = opened.page
    choose(opened, "plain.csv", b"".join(b"%d,%d,n/a\n" % (row, row * 7 % 10) for row in range(60)))
    expect(page.get_by_role("button", name="There is no header")).to_be_focused()
    page.keyboard.press("Enter")
    opened.table()
    expect(page.locator("h1")).to_be_focused()
    opened.tab_to("column_1")
    page.keyboard.press("L")  # Leave it out
    expect(page.get_by_label("column_1", exact=True)).to_have_value("drop")
    opened.tab_to("Texts that mean a missing value")
    page.keyboard.type("n/a")
    opened.tab_to("Make the changed table")
    page.keyboard.press("Enter")
    expect(page.get_by_label("column_1", exact=True)).to_have_count(0)
    opened.shown()
    expect(page.locator("h1")).to_be_focused()
    fields = client.get(f"/v1/buffers/{opened.table()}").json()["fields"]
    assert [field["name"] for field in fields] == ["column_2", "column_3"]
    opened.tab_to("Data swapping")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Parameters").wait_for()
    opened.tab_to("column_2")
    page.keyboard.press("Space")
    opened.tab_to("Run")
    page.keyboard.press("Enter")
    opened.ended()
    opened.tab_to("Only rows with a change")
    page.keyboard.press("Space")
    page.get_by_role("table", name="The first rows with a change").wait_for()
