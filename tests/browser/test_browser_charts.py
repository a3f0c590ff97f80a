"""Charts in a real browser: values under the pointer, local time, ranges, and readable colours."""

import pytest
from looking import NAMED, ZONE, hover_over, look_at
from playwright.sync_api import expect

pytestmark = [
    pytest.mark.nightly, pytest.mark.slow, pytest.mark.service, pytest.mark.timeout(600),
]  # fmt: skip

#: The texts of the page with less contrast than WCAG's AA asks for, each with its contrast.
UNREADABLE = """() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const rgba = text => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = text;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = rgb => {
    const linear = v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
    const [r, g, b] = rgb.slice(0, 3).map(v => linear(v / 255));
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const ground = element => {
    for (; element; element = element.parentElement) {
      const found = rgba(getComputedStyle(element).backgroundColor);
      if (found[3] === 255) { return found; }
    }
    return [255, 255, 255, 255];
  };
  const found = [];
  for (const element of document.querySelectorAll(".dlq *")) {
    const own = [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
    if (!own || !element.checkVisibility() || element.closest("svg")) { continue; }
    const style = getComputedStyle(element);
    const [one, other] = [rgba(style.color), ground(element)].map(light).sort((a, b) => b - a);
    const contrast = (one + .05) / (other + .05);
    const large = parseFloat(style.fontSize) >= 24;
    if (contrast < (large ? 3 : 4.5)) { found.push([element.textContent.trim().slice(0, 40), contrast]); }
  }
  return found;
}"""


@pytest.fixture
def logged_in(logged_in):
    return {**logged_in, "timezone_id": ZONE}


def test_letters_of_a_release_are_a_click_away(shop, page):
    task_ids = [shop.die("shop.charge", number, currency="EUX") for number in range(2)]
    page.goto(f"/dead-letters/groups/{shop.letter(task_ids[0]).fingerprint}?range=24h")
    page.get_by_role("link", name="1.4.2", exact=True).last.click()
    expect(page.locator("#dlq-count")).to_contain_text("2 letters match")
    page.go_back()
    page.get_by_role("link", name="redrive them").click()
    expect(page.get_by_role("heading", name="Redrive 2 letters")).to_be_visible()
    look_at(page, "redrive-release")


def test_parts_that_a_script_replaces_are_in_local_time_too(shop, page):
    shop.die("shop.charge", 1, currency="EUX")
    page.goto("/dead-letters")
    page.evaluate(
        """() => {
          const part = document.createElement("p");
          part.id = "fresh";
          part.innerHTML = '<time datetime="2026-11-26T09:04:05+00:00">2026-11-26 09:04:05 UTC</time>' +
            '<time datetime="2026-11-26T09:04:05+00:00" title="2026-11-26 09:04:05 UTC">5m ago</time>';
          document.querySelector("#dlq-arrivals").replaceWith(part);
        }"""
    )
    written, ago = page.locator("#fresh time").all()
    expect(written).to_have_text(f"2026-11-26 18:04:05 {NAMED}")
    expect(written).to_have_attribute("title", "2026-11-26 09:04:05 UTC")
    expect(ago).to_have_text("5m ago")
    expect(ago).to_have_attribute("title", f"2026-11-26 18:04:05 {NAMED} (2026-11-26 09:04:05 UTC)")


def test_a_groups_page_tells_what_happened(shop, page):
    task_id = shop.die("shop.charge", 1, currency="GBX")
    fingerprint = shop.letter(task_id).fingerprint
    page.goto(f"/dead-letters/groups/{fingerprint}?range=24h")
    hover_over(page, ".dlq-column:has(.dlq-fill)")
    value = page.locator(".dlq-value")
    expect(value).to_contain_text(": 1 letter")
    hover_over(page, "#dlq-trend h2")
    expect(value).to_be_hidden()
    page.get_by_text("Owner and note").click()
    page.get_by_label("Note", exact=True).fill("see <b>ticket 17</b>")
    page.locator("#dlq-write").click()
    story = page.locator("#dlq-story li")
    expect(story.first).to_contain_text("ann (flower) wrote the note")
    expect(story.first).to_contain_text("see <b>ticket 17</b>")
    expect(story.first.locator("time")).to_contain_text(NAMED)
    expect(story.last).to_contain_text("The first letter failed.")
    look_at(page, "group-story")
    page.get_by_role("link", name="all acts in the audit").click()
    expect(page.locator("#dlq-audit")).to_contain_text("note")


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_all_texts_are_readable(shop, page, colours):
    task_id = shop.die("shop.charge", 1, currency="GBX")
    fingerprint = shop.letter(task_id).fingerprint
    page.emulate_media(color_scheme=colours, reduced_motion="reduce")
    for path in ("", f"/groups/{fingerprint}", "/groups", "/letters", "/operations", "/audit"):
        page.goto(f"/dead-letters{path}")
        expect(page.locator("html")).to_have_attribute("data-bs-theme", colours)
        assert page.evaluate(UNREADABLE) == []
    page.goto("/dead-letters?range=7d")
    look_at(page, f"overview-{colours}")
