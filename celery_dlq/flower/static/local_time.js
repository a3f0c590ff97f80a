// Writes times in the browser's zone and names the zone; the server writes UTC, which stays in the tooltip. Forms send
// the zone, so that "monday" begins when it begins for the reader.
(function () {
  "use strict";

  var parts = new Intl.DateTimeFormat("en-GB", {
    year: "numeric", month: "short", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit",
    hourCycle: "h23", timeZoneName: "short"
  });
  var number = new Intl.DateTimeFormat("en-GB", { month: "2-digit" });

  var zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";

  var STAMP = /(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:\.\d+)?(?: UTC|\+00:00|Z)/g;

  function read(moment) {
    var found = {};
    parts.formatToParts(moment).forEach(function (part) { found[part.type] = part.value; });
    found.date = found.day + " " + found.month.slice(0, 3);
    found.clock = found.hour + ":" + found.minute;
    return found;
  }

  // As the server writes it: 26 Nov 10:04 CET, or 26 Nov 10:00 to 11:00 CET; with seconds where it has them.
  function brief(since, until, written) {
    var first = read(since), last = until ? read(until) : first;
    var hasSeconds = /\d:\d\d:\d\d/.test(written);
    function clock(found) { return found.clock + (hasSeconds ? ":" + found.second : ""); }
    var end = until ? " to " + (first.date === last.date ? "" : last.date + " ") + clock(last) : "";
    return first.date + " " + clock(first) + end + " " + last.timeZoneName;
  }

  // As the server writes it: 2026-11-26 10:04:05 CET.
  function whole(moment) {
    var found = read(moment);
    return [found.year, number.format(moment), found.day].join("-") + " " + found.clock + ":" + found.second +
      " " + found.timeZoneName;
  }

  function moments(element, first) {
    var until = element.dataset.until;
    return [new Date(first), until ? new Date(until) : null];
  }

  function writeTime(element) {
    var span = moments(element, element.dateTime), written = element.textContent.trim();
    if (isNaN(span[0])) { return; }
    if (!/UTC$/.test(written)) {
      element.title = whole(span[0]) + (element.title ? " (" + element.title + ")" : "");
    } else {
      element.title = written;
      element.textContent = /^\d{4}-/.test(written) ? whole(span[0]) : brief(span[0], span[1], written);
    }
  }

  // The tooltip of a shape in a chart.
  function writeTitle(shape) {
    var span = moments(shape, shape.dataset.since), title = shape.querySelector("title");
    if (!title || isNaN(span[0])) { return; }
    var utc = title.textContent.slice(0, title.textContent.indexOf("UTC") + 3);
    title.textContent = brief(span[0], span[1], utc) + ": " + shape.dataset.said + "\n" + utc;
  }

  // Times in a sentence, which may have marked words inside; they lose their marks.
  function writeSentence(element) {
    var written = element.textContent;
    if (element.querySelector(":not(mark)") || written.search(STAMP) < 0) { return; }
    element.title = written.trim();
    element.textContent = written.replace(STAMP, function (_all, day, clock) { return whole(new Date(day + "T" + clock + "Z")); });
  }

  function writeZone(element) {
    if (element.tagName === "INPUT") { element.value = zone; } else { element.textContent = zone; }
  }

  function each(root, selector, write) {
    root.querySelectorAll(selector).forEach(function (element) {
      if (element.hasAttribute("data-is-local")) { return; }
      element.setAttribute("data-is-local", "");
      write(element);
    });
  }

  function writeAll() {
    each(document, ".dlq time[datetime]", writeTime);
    each(document, ".dlq g[data-since]", writeTitle);
    each(document, ".dlq [data-times]", writeSentence);
    each(document, ".dlq [data-zone]", writeZone);
  }
  writeAll();
  // Other scripts replace parts of the page.
  new MutationObserver(writeAll).observe(document.body, { childList: true, subtree: true });
})();
