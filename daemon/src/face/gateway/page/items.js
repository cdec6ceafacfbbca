// How the items of a session's stream look.
//
// Whose words are whose is told by what is around them: the page's own words stand outside of `.said`, and nothing that a
// model, a tool or a file says leaves its box. Opened cards stay open while they are far from the window.

import { cleanExact, cleanLine } from './clean.js';
import { rows } from './diff.js';
import { el, fill, picture } from './dom.js';
import { bytes, clock, cost, duration, titleOf, traffic } from './format.js';
import { textOf } from './log.js';
import { Markdown } from './markdown.js';
import { http } from './wire.js';

const MOST = 40_000; // Characters of a text that are drawn unasked; each request for more draws four times as many
const PEEK = 8; // Lines of a running or failed call, and of a difference, that a closed card shows
const PEEK_DIFF = 24;

// `context`: `session`, `title(id)`, `visit(id)`.
export function draw(item, context) {
  const make = { prompt, text, thinking: aside, hosted: aside, call, question, end, line, plan, child }[item.type];
  const node = el('article', { class: `item ${item.type}`, title: item.at ? new Date(item.at).toLocaleString() : null });
  const update = make(node, item, context);
  const all = () => {
    node.classList.toggle('superseded', Boolean(item.superseded));
    node.setAttribute('aria-setsize', '-1');
    update();
  };
  all();
  return { node, update: all };
}

const head = (...words) => el('div', { class: 'who' }, words);

// Text that can be very long: its beginning, and a button for more of it.
function long(item, field, show) {
  const more = el('button', { class: 'more' });
  const update = () => {
    const [text, most] = [item[field], item.most ?? MOST];
    show(text.length > most ? text.slice(0, most) : text);
    more.hidden = text.length <= most;
    if (!more.hidden) more.textContent = `Show more (${bytes(text.length - most)} are left)`;
  };
  more.addEventListener('click', () => {
    item.most = (item.most ?? MOST) * 4;
    update();
  });
  return { more, update };
}

export const blobAt = (blob, session) => `/blob/${encodeURIComponent(blob)}?session=${encodeURIComponent(session)}`;

function image(block, session) {
  const node = el('span', { class: 'hint' }, '[picture]');
  if (!/^image\/(png|jpeg|gif|webp)$/.test(block.media_type)) return node;
  http(blobAt(block.blob, session)).then((answer) => answer.arrayBuffer())
    .then((data) => node.replaceWith(picture(new Blob([data], { type: block.media_type }), 'picture')), () => fill(node, '[this picture cannot be shown]'));
  return node;
}

function prompt(node, item, context) {
  node.setAttribute('aria-label', 'Prompt');
  const [body, said] = [el('div', { class: 'said plain', dir: 'auto' }), textOf(item.content)];
  const { more, update } = long({ said }, 'said', (text) => fill(body, text));
  node.append(head('you', item.by ? ` · ${cleanLine(item.by)}` : '', ` · ${clock(item.at)}`), body, more,
    ...item.content.filter((it) => it.type === 'image').map((it) => image(it, context.session)));
  return update;
}

function text(node, item) {
  node.setAttribute('aria-label', 'Answer of the model');
  const body = el('div', { class: 'said md' });
  const markdown = new Markdown(body);
  const { more, update } = long(item, 'text', (it) => markdown.update(it));
  const cut = el('div', { class: 'cut' });
  node.append(...(item.head ? [head(cleanLine(item.head))] : []), body, more, cut);
  return () => {
    update();
    body.classList.toggle('streams', !item.done);
    fill(cut, item.superseded ? 'interrupted; the step was repeated, and this does not count' : item.interrupted ? 'interrupted' : null);
    cut.hidden = !cut.firstChild;
  };
}

// A card whose content is made when it is first opened.
function card(node, item, summary, content) {
  const body = el('div', { class: 'inside' });
  const details = el('details', { class: 'card', open: Boolean(item.open), toggle: () => {
    item.open = details.open;
    refresh();
  } }, summary, body);
  const refresh = () => (details.open ? content(body) : body.replaceChildren());
  node.append(details);
  return refresh;
}

// What is beside the answer: thinking, and what ran at the provider.
function aside(node, item) {
  if (item.head) node.append(head(cleanLine(item.head)));
  const first = el('span', { class: 'first' });
  const what = { call: 'at the provider: ', result: 'result: ', error: 'failed: ' }[item.part] ?? '';
  const refresh = card(node, item, el('summary', {}, el('span', { class: 'name' }, cleanLine(item.tool ?? 'thinking')), first),
    (body) => fill(body.firstChild ?? body.appendChild(el('div', { class: 'said plain' })), item.text.slice(-MOST)));
  return () => {
    fill(first, what + cleanLine(item.text.slice(item.done ? 0 : -90).slice(0, 90).trim() || '…'));
    refresh();
  };
}

// What a call came to: a sign, its class, and words.
function result(item) {
  if (['pending', 'writing'].includes(item.state)) return ['·', '', item.state === 'writing' ? 'the model writes it' : ''];
  if (item.state === 'running') return ['●', 'busy', 'running'];
  const took = item.ms === undefined ? '' : duration(item.ms);
  const count = item.output ? item.output.replace(/\n$/, '').split('\n').length : 0;
  const lines = item.output === '[no output]' || !count ? '' : `, ${count} line${count === 1 ? '' : 's'}`;
  const { code, signal } = item.exit ?? {};
  if (item.outcome === 'ran' && !item.isError) return ['✓', 'good', took + lines];
  const why = { denied: 'denied', cancelled: 'cancelled', timed_out: `timed out after ${took}`, invalid: 'not valid',
    unknown: 'outcome unknown: the daemon ended while it ran' }[item.outcome];
  return ['✗', 'bad', why ?? (signal ? `ended by signal ${signal}` : code === undefined ? 'failed' : `exit code ${code}, ${took}`)];
}

// The arguments of a call, but for the one that its action is.
export function parts({ tool, action, input }) {
  const rest = action?.startsWith(`${tool} `) ? action.slice(tool.length + 1) : action;
  return Object.entries(input ?? {}).filter(([, value]) => value !== action && value !== rest);
}

export function argument([name, it]) {
  const text = typeof it === 'string' && it.trim() ? it : JSON.stringify(it, null, 2);
  return [el('dt', {}, cleanExact(name)), el('dd', {}, el('pre', { class: 'exact' }, cleanExact(text)))];
}

function call(node, item, context) {
  node.setAttribute('aria-label', 'Tool call');
  const [sign, name, first, said] = ['sign', 'name', 'first', 'said-short'].map((it) => el('span', { class: it }));
  const peek = el('div', { class: 'peek' });
  const refresh = card(node, item, el('summary', {}, sign, name, first, said), (body) => {
    const output = item.output.slice(0, item.most ?? MOST);
    const more = item.output.length > output.length ? el('button', { class: 'more', click: () => {
        item.most = (item.most ?? MOST) * 4;
        refresh();
      } }, `Show more (${bytes(item.output.length - output.length)} are left)`) : null;
    fill(body,
      el('dl', {}, el('dt', {}, 'action'), el('dd', {}, el('pre', { class: 'exact' }, cleanExact(item.action ?? item.tool))), parts(item).map(argument)),
      item.diff ? rows(item.diff.split('\n')) : null,
      output ? [el('div', { class: 'label' }, 'output'), el('pre', { class: 'said output', tabIndex: 0, 'aria-label': 'output' }, lastOfLines(output)), more] : null,
      (item.images ?? []).map((it) => image(it, context.session)), whole(item, context));
  });
  node.append(peek);
  return () => {
    const [mark, kind, words] = result(item);
    Object.assign(sign, { textContent: mark, className: `sign ${kind}` });
    fill(name, cleanLine(item.tool ?? ''));
    const { command, path, url } = item.input ?? {};
    const action = item.action ?? String(command ?? path ?? url ?? (item.input ? JSON.stringify(item.input) : item.written));
    fill(first, cleanExact(action.startsWith(`${item.tool} `) ? action.slice(item.tool.length + 1) : action).replace(/\n/g, '⏎').slice(0, 300));
    fill(said, [words, item.asked, item.why].filter(Boolean).map(cleanLine).join(' · '));
    refresh();
    fill(peek, item.open ? null : glimpse(item));
    peek.hidden = !peek.firstChild;
  };
}

// A line that is written over by carriage returns is as it was at last.
const lastOfLines = (output) => output.split('\n').map((it) => it.replace(/\r+$/, '').split('\r').at(-1)).join('\n');
function glimpse(item) {
  if (item.diff) {
    const lines = item.diff.replace(/\n$/, '').split('\n');
    const left = lines.length - PEEK_DIFF;
    return [rows(lines.slice(0, PEEK_DIFF)), left > 0 ? el('div', { class: 'hint' }, `${left} more lines: open the card`) : null];
  }
  const failed = item.state === 'done' && (item.isError || item.outcome !== 'ran') && item.outcome !== 'denied';
  if (!item.output || (!failed && item.state !== 'running')) return null;
  return el('pre', { class: 'said output' }, lastOfLines(item.output.slice(-4000)).trimEnd().split('\n').slice(-PEEK).join('\n'));
}

function whole(item, { session }) {
  if (!item.blob) return null;
  const a = el('a', {}, 'Download the whole output');
  a.href = blobAt(item.blob, session);
  a.download = 'output.txt';
  return a;
}

function question(node, item) {
  node.setAttribute('aria-label', 'Question');
  const { row } = item;
  const asked = row.kind === 'permission' ? `${row.tool} asked to run: ${row.action}` : row.text ?? '';
  const [what, said] = [el('span', { class: 'first' }, cleanExact(asked).replace(/\n/g, '⏎').slice(0, 300)), el('span', { class: 'said-short' })];
  node.append(el('div', { class: 'row' }, el('span', { class: 'sign asks' }, '?'), what, said));
  return () => { fill(said, item.answered ? cleanLine(item.said ?? 'answered') : 'waits for an answer'); };
}

function end(node, item) {
  const { reason, detail, hint, usage, steps, answer, ms } = item;
  const ok = reason === 'end_turn';
  const words = [ok ? 'done' : reason, ms === null ? '' : duration(ms), usage ? traffic(usage) : '', steps ? `${steps} step${steps === 1 ? '' : 's'}` : '', cost(usage)];
  node.classList.toggle('bad', !ok && reason !== 'cancelled');
  node.append(el('div', { class: 'row' }, words.filter(Boolean).join(' · ')),
    ...(detail ? [el('div', { class: 'why' }, detail, hint ? el('div', { class: 'hint' }, hint) : null)] : []),
    ...(answer === undefined ? [] : [el('pre', { class: 'said exact' }, JSON.stringify(answer, null, 2))]));
  return () => {};
}

function line(node, item) {
  if (item.level) node.classList.add(item.level === 'error' ? 'bad' : item.level === 'warning' ? 'asks' : 'calm');
  const words = el('span', { class: 'first' }, cleanLine(item.text));
  if (item.hint) words.append(el('span', { class: 'hint' }, ` ${item.hint}`));
  if (!item.detail) return () => fill(node, el('div', { class: 'row' }, words));
  return card(node, item, el('summary', {}, words), (body) => fill(body, el('pre', { class: 'said exact' }, item.detail.slice(0, MOST))));
}
const MARKS = { completed: '☑', in_progress: '◉', pending: '☐' };

function plan(node, item) {
  node.setAttribute('aria-label', 'Plan');
  const list = el('ul', { class: 'said' });
  node.append(head('plan'), list);
  return () => fill(list, (item.entries ?? []).map((it) => el('li', { class: it.status in MARKS ? it.status : null },
    el('span', { 'aria-label': String(it.status).replace('_', ' ') }, MARKS[it.status] ?? '·'), ' ', cleanLine(it.content))));
}

function child(node, item, context) {
  node.setAttribute('aria-label', 'Child session');
  const row = el('div', { class: 'row' });
  node.append(row);
  return () => fill(row, el('span', { class: `sign ${item.status === 'finished' ? 'good' : 'busy'}` }, '↳'),
    el('button', { class: 'link', click: () => context.visit(item.child) }, cleanLine(titleOf({ name: item.agent, title: item.child }))),
    el('span', { class: 'first' }, cleanLine(item.doing ?? '')),
    el('span', { class: 'said-short' }, [item.status, item.questions?.length ? `asks (${item.questions.length})` : '',
      item.steps ? `${item.steps} steps` : '', cost(item.usage)].filter(Boolean).join(' · ')));
}

