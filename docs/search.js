// Part of the search page, after Sphinx's own searchtools.js. Sphinx asks for every word of a query, and ranks a page by
// its best word alone, so a question in a sentence finds nothing, or pages in the order of the alphabet. Here each word
// counts by how rare it is, and most in a title, or in a question of the documentation's index.

const QUESTION_WEIGHT = 3, SECTION_WEIGHT = 2, PREFIX_WEIGHT = 0.5;
const MOST_RESULTS = 20, LEAST_SHARE = 0.25;
const SUMMARY_LENGTH = 240, BEFORE_MATCH = 60;

const stemmer = new Stemmer();
const stemsOf = (text) =>
  splitQuery(text.toLowerCase()).filter((word) => !stopwords.has(word)).map((word) => stemmer.stemWord(word));
const pagesOf = (files) => (files === undefined ? [] : [files].flat());
const likeness = (asked, word) => (word === asked ? 1 : asked.length > 3 && word.startsWith(asked) ? PREFIX_WEIGHT : 0);
const likenessIn = (asked, words) => Math.max(0, ...words.map((word) => likeness(asked, word)));

/** For each page its title, sections, questions and names, each with its words. */
const readHeadings = (index) => {
  const headings = index.docnames.map(() => []);
  const add = (text, file, anchor, weight, section) =>
    headings[file].push({ words: stemsOf(text), anchor: anchor || "", weight, section });
  for (const [text, places] of Object.entries(index.alltitles)) {
    for (const [file, anchor] of places) {
      if (text === index.titles[file]) add(text, file, "", QUESTION_WEIGHT);
      else add(text, file, anchor, SECTION_WEIGHT, text);
    }
  }
  for (const [text, places] of Object.entries(index.indexentries)) {
    for (const [file, anchor] of places) add(text, file, anchor, QUESTION_WEIGHT);
  }
  return headings;
};

/** How well each page has `asked` in its text: a list, by the number of the page. */
const inTexts = (index, asked) => {
  const found = index.docnames.map(() => 0);
  for (const terms of [index.terms, index.titleterms]) {
    for (const [term, files] of Object.entries(terms)) {
      const like = likeness(asked, term);
      if (like) pagesOf(files).forEach((file) => (found[file] = Math.max(found[file], like)));
    }
  }
  return found;
};

/** The words of a query, each with how well every page has it, and with how rare it is. */
const weigh = (query, index, headings) =>
  [...new Set(stemsOf(query))].map((word) => {
    const likeness = inTexts(index, word);
    headings.forEach((own, file) => own.forEach(({ words }) =>
      (likeness[file] = Math.max(likeness[file], likenessIn(word, words)))));
    const pages = likeness.filter(Boolean).length;
    return { word, likeness, rarity: Math.log(1 + index.docnames.length / (1 + pages)) };
  });

/** The heading of a page that matches best. Of two with the same words of the query, the one with fewer others. */
const bestOf = (headings, asked) => {
  let best = { score: 0, anchor: "" };
  for (const heading of headings) {
    const match = asked.reduce((sum, { word, rarity }) => sum + rarity * likenessIn(word, heading.words), 0);
    const matched = heading.words.filter((own) => asked.some(({ word }) => likeness(word, own)));
    const score = heading.weight * match * (2 + matched.length / Math.max(1, heading.words.length)) / 3;
    if (score > best.score) best = { ...heading, score };
  }
  return best;
};

/** The results of a query, the best one last, as Sphinx expects them. */
Search._performSearch = (query) => {
  const index = Search._index;
  const headings = readHeadings(index);
  const asked = weigh(query, index, headings);
  const results = index.docnames.map((name, file) => {
    const best = bestOf(headings[file], asked);
    const title = best.section ? `${index.titles[file]} > ${best.section}` : index.titles[file];
    const inText = asked.reduce((sum, { likeness, rarity }) => sum + rarity * likeness[file], 0);
    const kind = best.score ? SearchResultKind.title : SearchResultKind.text;
    return [name, title, best.anchor && `#${best.anchor}`, null, inText + best.score, index.filenames[file], kind];
  });
  const scoreOf = (result) => result[4];
  const highest = Math.max(...results.map(scoreOf));
  return results
    .filter((result) => scoreOf(result) > 0 && scoreOf(result) >= LEAST_SHARE * highest)
    .sort((one, other) => scoreOf(one) - scoreOf(other))
    .slice(-MOST_RESULTS);
};

/** The part of a page that has the most of the words. Sphinx shows the beginning of the page if a word's stem differs. */
Search.makeSearchSummary = (html, keywords, anchor) => {
  const page = new DOMParser().parseFromString(html, "text/html");
  page.querySelectorAll(".headerlink, script, style, h1, table.docutils thead").forEach((part) => part.remove());
  page.querySelectorAll("p, li, td, h2, h3, h4, pre").forEach((part) => part.append(" "));
  const main = page.querySelector('[role="main"]');
  const part = (anchor && main.querySelector(`#${CSS.escape(anchor.slice(1))}`)) || main;
  const text = part.textContent.replace(/\s+/g, " ").trim();
  const hits = [...text.matchAll(/[\p{Letter}\p{Number}_]+/gu)]
    .map((match) => ({ at: match.index, stem: stemmer.stemWord(match[0].toLowerCase()) }))
    .map(({ at, stem }) => ({ at, word: [...keywords].find((word) => likeness(word, stem)) }))
    .filter((hit) => hit.word);
  let start = 0, most = 0;
  for (const { at } of hits) {
    const near = hits.filter((hit) => hit.at >= at && hit.at < at + SUMMARY_LENGTH - BEFORE_MATCH);
    const different = new Set(near.map((hit) => hit.word)).size;
    if (different > most) [most, start] = [different, Math.max(0, at - BEFORE_MATCH)];
  }
  const summary = document.createElement("p");
  summary.classList.add("context");
  const cut = start + SUMMARY_LENGTH < text.length;
  const end = cut ? text.lastIndexOf(" ", start + SUMMARY_LENGTH) : text.length;
  const shown = text.slice(start && text.indexOf(" ", start) + 1, end);
  summary.textContent = `${start ? "… " : ""}${shown}${cut ? " …" : ""}`;
  return summary;
};
