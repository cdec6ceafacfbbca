// Markdown of models, as nodes: headings, lists, tables, fences, quotes, emphasis, code, links. Raw HTML is text, images are
// their targets in words: nothing is loaded because a model says so.
//
// A text that grows is parsed from its last block on: what stands before is final and stays in the page as it is, so that a
// selection survives, and a long answer costs what its last paragraph costs. Every pattern is linear in its line.

import { clean } from './clean.js';
import { el, link, target } from './dom.js';

const DEPTH = 8; // Deeper lists and quotes are text
const OPEN = 16; // Emphasis that is open at the same time; a closing mark looks no further back
const LINE = 20_000; // Characters of a line that are read for marks; the rest is text
const COLUMNS = 40; // Columns of a table, so that a line of bars does not become a wall

const FENCE = /^( {0,3})(`{3,}|~{3,}) *([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?: +(.*?))?(?: +#+)? *$/;
const RULE = /^ {0,3}([-*_])(?: *\1){2,} *$/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])(?: (.*)|$)/;
const QUOTE = /^ {0,3}> ?(.*)$/;
const DELIMITER = /^ {0,3}\|?(?: *:?-+:? *\|)+(?: *:?-+:? *)?$|^ {0,3}\|? *:?-+:? *\|$/;

// The view of a text that grows at its end.
export class Markdown {
  constructor(node) { Object.assign(this, { node, text: '', final: 0, tail: [] }); }
  update(text) {
    if (!text.startsWith(this.text.slice(0, this.final))) {
      this.node.replaceChildren();
      Object.assign(this, { final: 0, tail: [], fence: null });
    }
    this.text = text;
    const rest = text.slice(this.final);
    // A fence that is still open only gets more text.
    if (this.fence && rest.startsWith(this.fence.read) && !this.fence.ends.test(rest.slice(this.fence.lines))) {
      this.fence.code.append(document.createTextNode(clean(rest.slice(this.fence.read.length))));
      this.fence.read = rest;
      this.fence.lines = rest.lastIndexOf('\n') + 1;
      return;
    }
    this.fence = null;
    this.tail.forEach((node) => node.remove());
    const found = blocks(rest.split('\n'), 0);
    const last = found.at(-1);
    for (const block of found) if (block !== last) this.node.append(...block.nodes);
    this.final += offset(rest, last?.start ?? 0);
    this.tail = last?.nodes ?? [];
    this.node.append(...this.tail);
    if (last?.open) {
      const read = text.slice(this.final);
      this.fence = { code: last.code, read, lines: read.lastIndexOf('\n') + 1, ends: /^ {0,3}(`{3,}|~{3,})/m };
    }
  }
}

// Where a line begins.
function offset(text, line) {
  let at = 0;
  for (; line > 0; line -= 1) at = text.indexOf('\n', at) + 1;
  return at;
}

// The blocks of some lines: where each begins, and its nodes.
function blocks(lines, depth) {
  const found = [];
  for (let at = 0; at < lines.length; ) {
    if (!lines[at].trim()) {
      at += 1;
      continue;
    }
    const block = { start: at, nodes: [] };
    at = next(lines, at, depth, block);
    found.push(block);
  }
  return found;
}

const starts = (line) => FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line);

function next(lines, at, depth, block) {
  const line = lines[at];
  const fence = FENCE.exec(line);
  if (fence) return fenced(lines, at, fence, block);
  const heading = HEADING.exec(line);
  if (heading) {
    // Under the headings of the page itself.
    const level = Math.min(heading[1].length + 2, 6);
    block.nodes.push(el(`h${level}`, { dir: 'auto' }, inline(heading[2] ?? '')));
    return at + 1;
  }
  if (RULE.test(line)) {
    block.nodes.push(el('hr'));
    return at + 1;
  }
  if (depth < DEPTH && QUOTE.test(line)) {
    const inner = [];
    for (let quote; at < lines.length && (quote = QUOTE.exec(lines[at])); at += 1) inner.push(quote[1]);
    block.nodes.push(el('blockquote', {}, blocks(inner, depth + 1).map((it) => it.nodes)));
    return at;
  }
  if (depth < DEPTH && ITEM.test(line)) return list(lines, at, depth, block);
  if (line.includes('|') && DELIMITER.test(lines[at + 1] ?? '')) return table(lines, at, block);
  const text = [line];
  for (at += 1; at < lines.length && lines[at].trim() && !starts(lines[at]) && !ITEM.test(lines[at]); at += 1) text.push(lines[at]);
  block.nodes.push(el('p', { dir: 'auto' }, inline(text.map((it) => it.trimStart()).join('\n'))));
  return at;
}

function fenced(lines, at, [, indent, mark, language], block) {
  const ends = new RegExp(`^ {0,3}${mark[0]}{${mark.length},} *$`);
  const inner = [];
  for (at += 1; at < lines.length && !ends.test(lines[at]); at += 1) inner.push(lines[at].startsWith(indent) ? lines[at].slice(indent.length) : lines[at]);
  block.open = at >= lines.length;
  block.code = el('code', {}, inner.join('\n'));
  const name = language.trim().split(' ')[0];
  block.nodes.push(el('pre', { class: 'code', tabIndex: 0, 'aria-label': name ? `code, ${name}` : 'code' }, block.code));
  return at + 1;
}

function list(lines, at, depth, block) {
  const first = ITEM.exec(lines[at]);
  const ordered = /\d/.test(first[2]);
  const items = [];
  let inner = null;
  let width = 0;
  for (; at < lines.length; at += 1) {
    const line = lines[at];
    const item = ITEM.exec(line);
    if (item && item[1].length < width + (inner ? 0 : 9) && /\d/.test(item[2]) === ordered && !RULE.test(line)) {
      width = item[1].length + item[2].length + 1;
      items.push((inner = [item[3] ?? '']));
    } else if (!line.trim()) {
      const after = lines[at + 1] ?? '';
      if (!after.startsWith(' '.repeat(width)) && !ITEM.test(after)) break;
      inner.push('');
    } else if (line.startsWith(' '.repeat(width))) inner.push(line.slice(width));
    else if (!starts(line) && !item && inner.at(-1).trim()) inner.push(line.trimStart());
    else break;
  }
  const rows = items.map((item) => {
    const task = /^\[([ xX])\] /.exec(item[0]);
    if (task) item[0] = item[0].slice(4);
    const nodes = blocks(item, depth + 1).flatMap((it) => it.nodes);
    // The text of a short item is no paragraph.
    if (nodes[0]?.tagName === 'P') nodes.splice(0, 1, ...nodes[0].childNodes);
    return el('li', { class: task ? 'task' : null, dir: 'auto' }, task ? (task[1] === ' ' ? '☐ ' : '☑ ') : null, nodes);
  });
  const node = el(ordered ? 'ol' : 'ul', {}, rows);
  if (ordered) node.start = parseInt(first[2], 10);
  block.nodes.push(node);
  return at;
}

const cells = (line) => line.trim().replace(/^\||\|$/g, '').split('|').slice(0, COLUMNS).map((cell) => cell.trim());

function table(lines, at, block) {
  const head = cells(lines[at]);
  const sides = cells(lines[at + 1]).map((it) => (/^:.*:$/.test(it) ? 'center' : it.endsWith(':') ? 'right' : null));
  const row = (tag, line) => el('tr', {}, head.map((_, n) => el(tag, { class: sides[n], dir: 'auto' }, inline(line[n] ?? ''))));
  const body = [];
  for (at += 2; at < lines.length && lines[at].includes('|') && !starts(lines[at]); at += 1) body.push(row('td', cells(lines[at])));
  block.nodes.push(el('div', { class: 'table', tabIndex: 0, role: 'group', 'aria-label': 'table' },
    el('table', {}, el('thead', {}, row('th', head)), el('tbody', {}, body))));
  return at;
}

const TOKEN = new RegExp([
  /\\([!-/:-@[-`{-~])/, // 1: escaped
  /(`+)/, // 2: code
  /!?\[([^[\]\n]{0,1000})\]\(<?((?:[^\s()<>]|\([^\s()<>]{0,500}\)){1,2000})>?(?: "[^"\n]{0,500}")?\)/, // 3, 4: link
  /<((?:https?:\/\/|mailto:)[^\s<>]{1,2000})>/, // 5: link in angle brackets
  /(https?:\/\/[^\s<>"'`*|\\]{1,2000})/, // 6: link as it is
  /(\*{1,3}|_{1,3}|~~)/, // 7: emphasis
].map((it) => it.source).join('|'), 'g');

const TAGS = { '*': ['em'], _: ['em'], '**': ['strong'], __: ['strong'], '***': ['strong', 'em'], ___: ['strong', 'em'], '~~': ['s'] };

// A line, or some, as nodes and strings.
export function inline(text) {
  const frames = [{ mark: '', nodes: [] }];
  const put = (...nodes) => frames.at(-1).nodes.push(...nodes);
  const fold = () => {
    const { mark, nodes } = frames.pop();
    put(mark, ...nodes);
  };
  const end = Math.min(text.length, LINE);
  let at = 0;
  TOKEN.lastIndex = 0;
  for (let token; at < end && (token = TOKEN.exec(text)) && token.index < end; at = TOKEN.lastIndex) {
    put(text.slice(at, token.index));
    const [whole, escaped, ticks, label, address, angled, plain, mark] = token;
    if (escaped) put(escaped);
    else if (ticks) {
      const close = closing(text, TOKEN.lastIndex, ticks);
      if (close < 0) put(ticks);
      else {
        put(el('code', {}, text.slice(TOKEN.lastIndex, close).replace(/\n/g, ' ').replace(/^ (.*\S.*) $/, '$1')));
        TOKEN.lastIndex = close + ticks.length;
      }
    } else if (address) put(...(target(address) ? link(label || address, address) : [whole]));
    else if (angled) put(...link(angled, angled));
    else if (plain) {
      const trimmed = plain.replace(/[.,;:!?)\]}]+$/, (tail) => (tail[0] === ')' && plain.includes('(') ? ')' : ''));
      put(...link(trimmed, trimmed));
      TOKEN.lastIndex = token.index + trimmed.length;
    } else emphasis(text, token, mark);
  }
  put(text.slice(at));
  while (frames.length > 1) fold();
  return frames[0].nodes;

  function emphasis(line, { index }, mark) {
    const [before, after] = [line[index - 1] ?? ' ', line[index + mark.length] ?? ' '];
    const inWord = mark[0] === '_' && /[\p{L}\p{N}]/u.test(before) && /[\p{L}\p{N}]/u.test(after);
    const opener = frames.findLastIndex((frame, n) => n >= frames.length - OPEN && frame.mark === mark);
    if (/\S/.test(before) && opener > 0 && !inWord) {
      while (frames.length - 1 > opener) fold();
      const { nodes } = frames.pop();
      put(TAGS[mark].reduceRight((inner, tag) => [el(tag, {}, inner)], nodes)[0]);
    } else if (/\S/.test(after) && !inWord && frames.length < OPEN) frames.push({ mark, nodes: [] });
    else put(mark);
  }
}

// Where as many ticks close, or -1. A line of ticks is looked at once for each length.
function closing(text, from, ticks) {
  for (let at = text.indexOf(ticks, from); at >= 0 && at < from + LINE; at = text.indexOf(ticks, at)) {
    let end = at;
    while (text[end] === '`') end += 1;
    if (end - at === ticks.length) return at;
    at = end;
  }
  return -1;
}
