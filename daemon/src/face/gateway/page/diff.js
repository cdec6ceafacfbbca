// Differences of texts, line by line, and how they look. Pure but for the elements.

import { cleanExact } from './clean.js';
import { el } from './dom.js';

const CONTEXT = 3; // Lines that stay the same and are shown around those that do not
const CELLS = 2_000_000; // Pairs of lines beyond which all old lines are shown as removed and all new ones as added: some milliseconds

// The lines of a unified difference, without the names of files.
export function difference(before, after) {
  const [a, b] = [split(before), split(after)];
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let [endA, endB] = [a.length, b.length];
  while (endA > start && endB > start && a[endA - 1] === b[endB - 1]) [endA, endB] = [endA - 1, endB - 1];
  const middle = shortest(a.slice(start, endA), b.slice(start, endB));
  const same = (lines) => lines.map((text) => [' ', text]);
  return hunks([...same(a.slice(0, start)), ...middle, ...same(a.slice(endA))]);
}

function split(text) {
  const lines = text.split('\n');
  if (lines.at(-1) === '') lines.pop();
  return lines;
}

// The fewest lines that are removed and added: the longest common sequence, by its lengths from each place on.
function shortest(a, b) {
  if (a.length * b.length > CELLS) return [...a.map((text) => ['-', text]), ...b.map((text) => ['+', text])];
  const width = b.length + 1;
  const common = new Uint32Array((a.length + 1) * width);
  for (let x = a.length - 1; x >= 0; x -= 1) {
    for (let y = b.length - 1; y >= 0; y -= 1) {
      const at = x * width + y;
      common[at] = a[x] === b[y] ? common[at + width + 1] + 1 : Math.max(common[at + width], common[at + 1]);
    }
  }
  const lines = [];
  for (let [x, y] = [0, 0]; x < a.length || y < b.length; ) {
    const at = x * width + y;
    if (x < a.length && y < b.length && a[x] === b[y]) lines.push([' ', a[x++], y++]);
    else if (x < a.length && (y >= b.length || common[at + width] >= common[at + 1])) lines.push(['-', a[x++]]);
    else lines.push(['+', b[y++]]);
  }
  return lines;
}

function hunks(lines) {
  const shown = new Uint8Array(lines.length);
  lines.forEach(([mark], at) => mark !== ' ' && shown.fill(1, Math.max(0, at - CONTEXT), at + CONTEXT + 1));
  const out = [];
  let line = 1;
  lines.forEach(([mark, text], at) => {
    if (shown[at] && !shown[at - 1] && (at > 0 || lines.length > 1)) out.push(`@@ line ${line} @@`);
    if (shown[at]) out.push(mark + text);
    if (mark !== '+') line += 1;
  });
  return out;
}

const KINDS = { '+': 'added', '-': 'removed', '@': 'hunk' };

// The lines as rows; the marks are read out, colours only repeat them.
export function rows(lines) {
  const name = (line) => (/^(\+\+\+|---) /.test(line) ? 'hunk' : KINDS[line[0]]);
  return el('pre', { class: 'diff exact', tabIndex: 0, 'aria-label': 'difference' },
    lines.map((line) => el('span', { class: name(line) }, `${cleanExact(line)}\n`)));
}
