// The page as a whole: login, what is shown at which address, the streams, the keys.
//
// `#code=CODE` logs in, `#session=ID` shows a session, `#question=ID` that one question, `#inbox` all that wait.

import { cleanLine } from './clean.js';
import { Compose, choose, newSession } from './compose.js';
import { add, announce, byId, dialog, el, failed, fill, isTyping, toast } from './dom.js';
import { Feed } from './feed.js';
import { cost, stateOf, titleOf, tokens } from './format.js';
import { draw } from './items.js';
import { GROUPS, Log } from './log.js';
import { card } from './questions.js';
import { Sessions } from './sessions.js';
import { Stream, call, change, http } from './wire.js';

const KEYS = [['/', 'search'], ['b', 'inbox'], ['c', 'new session'], ['p', 'write a prompt'], ['[ ]', 'the session before, after'], ['Enter', 'send'],
  ['Ctrl+Enter', 'send before the next step'], ['Shift+Esc', 'stop the turn'], ['y s n r', 'answer a permission'], ['1 … 9', 'answer a choice'], ['g', 'to the latest'], ['?', 'these keys']];
// `events/subscribe` sends these for the list and the inbox.
const WATCHED = 'session_created,session_changed,turn_started,turn_finished,permission_requested,permission_resolved,question_asked,question_resolved,'
  + 'prompt_accepted,prompt_unqueued,prompt_drafted,draft_sent,child_updated,forked,background_started,background_ended';

const TOGETHER_MS = 30; // Questions that come within this time are asked for together

let grant = null;
// What is shown of a session: its `session`, `log`, `feed`, `stream`, and the kinds that are `off`.
let view = null;
let everything = null;
let questions = new Map();
const cards = new Map();
const state = { lost: false, loaded: false };
const can = (what) => !grant?.can || grant.can.includes(what) || grant.can.includes('administer');
// What this browser keeps; without storage it counts until the page is closed.
function kept(name, value) {
  try {
    if (value !== undefined) localStorage.setItem(name, JSON.stringify(value));
    return JSON.parse(localStorage.getItem(name));
  } catch {
    return value;
  }
}

const visit = (session) => (location.hash = `session=${encodeURIComponent(session)}`);
const rowOf = (session) => sessions.rows.get(session);
const sessions = new Sessions({ visit, changed: () => drawQuestions() || drawTop() });
const compose = new Compose({ row: () => view && rowOf(view.session), can, changed: () => view && sessions.touch(view.session),
  waits: (prompt) => view?.log.queued.has(prompt) });

// Login.
async function begin() {
  const params = new URLSearchParams(location.hash.slice(1));
  const code = params.get('code');
  params.delete('code');
  if (code) history.replaceState(null, '', `#${params}`);
  try {
    if (code) await login(code);
    grant = (await (await http('/me')).json()).grant;
  } catch (error) {
    return askForCode(error.code === 401 && !code ? null : error);
  }
  return start();
}

const login = (code) => http('/login', { method: 'POST', body: JSON.stringify({ code }), headers: { 'Content-Type': 'application/json' } });

function askForCode(error) {
  everything?.stop();
  view?.stream?.stop();
  byId('app').hidden = true;
  byId('login').hidden = false;
  fill(byId('login-error'), error ? [error.message, error.hint ? ` – ${error.hint}` : ''] : null);
  byId('login-code').focus();
}

function start() {
  byId('login').hidden = true;
  byId('app').hidden = false;
  fill(byId('who'), grant?.name ? cleanLine(grant.name) : '');
  byId('new').hidden = !can('speak');
  compose.begin().catch(failed);
  everything?.stop();
  const lineState = (word) => drawTop((state.lost = word === 'lost'));
  everything = new Stream('/events', { kinds: WATCHED }, { event: happened, state: lineState }).start('now');
  route();
}

// All sessions.
function happened({ session, event }) {
  if (event.kind === 'caught_up') return Promise.all([sessions.load(), loadQuestions()]).catch(failed);
  if (session && session !== 'daemon') sessions.touch(session);
  if (/_resolved$/.test(event.kind)) questions.delete(event.permission ?? event.question);
  if (!/^(permission|question)_/.test(event.kind)) return undefined;
  state.timer ??= setTimeout(() => {
    state.timer = undefined;
    loadQuestions().catch(failed);
  }, TOGETHER_MS);
  return undefined;
}

async function loadQuestions() {
  const found = [];
  for (let page, last; !page || page.length; ) {
    page = await call('question/list', last ? { after: last } : {});
    found.push(...page);
    last = page.at(-1);
  }
  const asked = found.find((row) => !questions.has(row.question));
  if (asked) announce(`Question: ${asked.action ?? asked.text ?? ''}`.slice(0, 200));
  questions = new Map(found.map((row) => [row.question, row]));
  state.loaded = true;
  drawQuestions();
}

// One card for each question, wherever it is shown: what was typed into it stays.
function cardOf(row) {
  if (!cards.has(row.question)) {
    const answered = () => {
      questions.delete(row.question);
      view?.log?.questions.delete(row.question);
      drawQuestions();
    };
    const made = card(row, { answered, visit });
    if (!can('answer_edits') && !can('answer_commands')) made.node.querySelectorAll('.big').forEach((it) => (it.disabled = true));
    cards.set(row.question, made);
  }
  return cards.get(row.question);
}

function drawQuestions() {
  const count = questions.size;
  fill(byId('inbox-count'), String(count));
  byId('inbox-count').hidden = !count;
  document.title = `${count ? `(${count}) ` : ''}${view && rowOf(view.session) ? cleanLine(titleOf(rowOf(view.session))) : 'linger'}`;
  // What the stream of the session says comes first: it has what a change would do.
  const ours = new Map([...questions.values()].filter((row) => view && [row.session, row.parent].includes(view.session)).map((row) => [row.question, row]));
  for (const [id, row] of view?.log.questions ?? []) ours.set(id, { ...row, session: view.session });
  for (const id of cards.keys()) if (!questions.has(id) && !ours.has(id)) cards.delete(id);
  place(byId('dock'), [...ours.values()]);
  if (state.place === 'inbox') place(byId('stream').firstChild, [...questions.values()], ['Nothing waits for an answer.']);
  if (state.place === 'question' && state.loaded) drawOne();
  markKeys();
}

function place(node, rows, empty) {
  for (const row of rows) cardOf(row).name(view?.session, rowOf(row.session) && titleOf(rowOf(row.session)));
  const nodes = rows.map((row) => cardOf(row).node);
  if (empty && !nodes.length) return fill(node, el('div', { class: 'empty' }, empty));
  if (nodes.length === node.children.length && nodes.every((it, n) => it === node.children[n])) return;
  const hadFocus = node.contains(document.activeElement);
  node.replaceChildren(...nodes);
  return hadFocus && nodes[0]?.focus();
}

const shownCards = () => [...document.querySelectorAll('.question')].map((it) => cards.get(it.dataset.question)).filter(Boolean);

// What is shown.
function route() {
  const params = new URLSearchParams(location.hash.slice(1));
  if (params.has('code')) return begin();
  if (byId('app').hidden) return undefined;
  leave();
  drawer(false);
  if (params.has('question')) showQuestions('question', params.get('question'));
  else if (params.has('session')) showSession(params.get('session'), Number(params.get('seq')) || null);
  else if (params.has('inbox')) showQuestions('inbox');
  else fill(byId('stream'), el('div', { class: 'empty' }, 'Choose a session, or begin one.'));
  sessions.current = view?.session ?? null;
  sessions.draw();
  drawTop();
  return drawQuestions();
}

function leave() {
  view?.stream?.stop();
  view?.feed.close();
  view = null;
  state.place = null;
  fill(byId('stream'));
  fill(byId('queue'));
  byId('latest').hidden = true;
}

function showQuestions(place, one) {
  Object.assign(state, { place, one, row: null });
  fill(byId('stream'), el('div', { class: 'questions' }));
}

function drawOne() {
  const row = questions.get(state.one);
  state.row = row ?? state.row;
  const session = state.row?.session;
  const go = () => (session ? visit(session) : (location.hash = 'inbox'));
  place(byId('stream').firstChild, row ? [row] : [], [el('p', {}, state.row ? 'It is answered.' : `Question ${cleanLine(state.one)} does not wait for an answer.`),
    el('button', { class: 'big', click: go }, session ? 'Open the session' : 'Open the inbox')]);
}

async function showSession(session, seq) {
  state.place = 'session';
  const off = new Set(kept('off') ?? []);
  const shown = (item) => !off.has(item.group);
  const feed = new Feed(byId('stream'), (item) => draw(item, { session, visit }), (atEnd) => (byId('latest').hidden = atEnd));
  const on = { added: (item) => mine.ready && shown(item) && feed.add(item), changed: (item) => feed.changed(item) };
  const mine = { session, log: new Log(on), feed, off, shown, ready: false };
  view = mine;
  compose.swap(session);
  const lineState = (word, text) => {
    if (mine !== view) return;
    mine.lost = word === 'lost';
    if (word === 'gone') fill(byId('stream'), el('p', { class: 'empty' }, text));
    drawTop();
  };
  // Whole messages up to where the session is now.
  const load = (log, cursor) => new Promise((done) => {
    const event = (params) => {
      log.event(params.event, params.answered);
      if (params.event.kind === 'caught_up') done(params.cursor);
    };
    mine.stream?.stop();
    mine.stream = new Stream('/events', { session, deltas: '0' }, { event, state: lineState }).start(cursor);
  });
  const begin = async () => {
    [mine.log, mine.ready, feed.node.ariaBusy] = [new Log(on), false, 'true'];
    // The latest turn at once, then all of it, then each word as it comes.
    const row = rowOf(session) ?? (await call('session/list', { matching: session }).catch(() => [])).find((it) => it.session === session);
    if (mine !== view) return;
    const latest = new Log({ added() {}, changed() {} });
    if (row?.turn_cursor && !seq) {
      await load(latest, row.turn_cursor);
      feed.set(latest.items.filter(shown));
    }
    const cursor = await load(mine.log);
    mine.stream.stop();
    if (mine !== view) return;
    [mine.ready, feed.node.ariaBusy] = [true, 'false'];
    latest.items.filter((it) => it.open).forEach(({ key }) => Object.assign(mine.log.byKey.get(key) ?? {}, { open: true }));
    feed.set(mine.log.items.filter(shown));
    if (seq) feed.show(mine.log.items.findLast((it) => it.seq <= seq && shown(it)));
    drawSession();
    mine.stream = new Stream('/events', { session, person: '1' }, { event: happens, state: lineState, reset: begin }).start(cursor);
  };
  function happens({ event, answered }) {
    mine.log.event(event, answered);
    if (/_delta$/.test(event.kind) || mine !== view) return;
    if (event.kind === 'turn_finished') announce(`The turn has ended: ${event.stop_reason}`);
    drawSession();
  }
  begin();
}

function drawSession() {
  const queue = [...view.log.queued.values()];
  fill(byId('queue'), queue.map((it) => el('div', { class: 'queued' }, el('span', { class: 'hint' }, it.draft ? 'draft' : it.when === 'queue' ? 'queued' : it.when),
    el('span', { class: 'first' }, cleanLine(it.text)), it.draft ? el('button', { class: 'quiet', 'aria-label': 'Send the draft', title: 'Send the draft',
      click: () => change('session/continue', { session: view.session, prompt: it.prompt }).catch(failed) }, '↑') : null, el('button', { class: 'quiet', 'aria-label': 'Take back', title: 'Take back',
      click: () => change('session/unqueue', { session: view.session, prompt: it.prompt }).catch(failed) }, '×'))));
  drawQuestions();
  drawTop();
}

function drawTop() {
  const row = view && rowOf(view.session);
  const isLost = state.lost || view?.lost;
  const line = byId('line');
  Object.assign(line, { textContent: isLost ? 'reconnecting…' : '', className: `chip ${isLost ? 'bad' : ''}`, hidden: !isLost });
  const title = { inbox: 'Inbox', question: 'Question' }[state.place] ?? 'linger';
  fill(byId('title'), row ? cleanLine(titleOf(row)) : title);
  const context = row?.context_window ? `${Math.floor((100 * (row.context_tokens ?? 0)) / row.context_window)} % of ${tokens(row.context_window)} context` : '';
  fill(byId('about'), row ? [cleanLine(row.cwd), cost(row.usage), context, row.provider_wait ? cleanLine(row.provider_wait.reason) : ''].filter(Boolean).join(' · ') : '');
  const [word, kind] = row ? stateOf(row) : ['', ''];
  Object.assign(byId('state'), { textContent: word, className: `chip ${kind}`, hidden: !word });
  byId('kinds').hidden = byId('more').hidden = !view;
  compose.draw();
}

// Dialogs.
function chooseKinds() {
  const boxes = Object.entries(GROUPS).map(([name, label]) => el('label', {}, el('input', { type: 'checkbox', checked: !view.off.has(name), change: (event) => {
    view.off[event.target.checked ? 'delete' : 'add'](name);
    kept('off', [...view.off]);
    view.feed.set(view.log.items.filter(view.shown));
  } }), ` ${label}`));
  dialog('What is shown', el('div', { class: 'checks' }, boxes));
}

const wordsOf = (item) => item.text ?? item.action ?? item.row?.action ?? item.content?.map((it) => it.text ?? '').join(' ') ?? '';

function search() {
  const rows = async (words) => {
    const lower = words.toLowerCase();
    const found = [];
    const around = (text) => {
      const at = text.toLowerCase().indexOf(lower);
      return cleanLine(text.slice(Math.max(0, at - 40), at + 120).replace(/\s+/g, ' ')).trim();
    };
    const hits = lower && view ? view.log.items.filter((it) => view.shown(it) && `${wordsOf(it)} ${it.output ?? ''}`.toLowerCase().includes(lower)) : [];
    for (const item of hits.slice(-20).reverse()) found.push({ title: around(`${wordsOf(item)} ${item.output ?? ''}`), sub: `in this session · ${item.type}`, go: () => view.feed.show(item) });
    const named = [...sessions.rows.values()].filter((row) => `${titleOf(row)} ${row.cwd} ${row.session}`.toLowerCase().includes(lower));
    for (const row of named.slice(0, lower ? 8 : 20)) found.push({ title: cleanLine(titleOf(row)), sub: `${stateOf(row)[0]} · ${cleanLine(row.cwd)}`, go: () => visit(row.session) });
    if (/[\p{L}\p{N}]/u.test(words)) {
      const { rows: elsewhere } = await call('session/search', { text: words }).catch(() => ({ rows: [] }));
      for (const it of elsewhere.slice(0, 20)) {
        found.push({ title: cleanLine(it.snippet), sub: `in ${cleanLine(rowOf(it.session) ? titleOf(rowOf(it.session)) : it.session)}`,
          go: () => (location.hash = `session=${encodeURIComponent(it.session)}&seq=${it.seq}`) });
      }
    }
    return found;
  };
  choose('Search', 'Sessions, and words in messages', rows, (it) => it.go());
}

function createSession() {
  const cwds = [...new Set([...sessions.rows.values()].map((row) => row.cwd))];
  newSession({ cwds, cwd: (view && rowOf(view.session)?.cwd) ?? grant?.directory ?? cwds[0], created: (session) => {
    sessions.touch(session);
    visit(session);
    byId('prompt').focus();
  } });
}

function moreActions() {
  const row = rowOf(view.session);
  const act = (method, params = {}, said) => () => change(method, { session: row.session, ...params }).then(() => said && toast(said)).catch(failed);
  const names = async (name) => (name ? [{ title: `Name it “${cleanLine(name)}”`, name }] : []);
  const rename = () => choose('Rename', 'Name', names, ({ name }) => act('session/set', { name })(), 'Write a name.');
  const choices = [
    { title: 'Rename', go: rename },
    { title: 'Compact', sub: 'a summary stands for older messages', go: act('session/compact') },
    { title: 'Undo changes of files', sub: 'of the latest turn; files that something else may have changed stay', go: act('session/undo', {}, 'Undone') },
    { title: 'Undo all changes of files', sub: 'also those that something else may have made while a command ran', go: act('session/undo', { uncertain: 'undo' }, 'Undone') },
    { title: 'Redo', go: act('session/redo', {}, 'Done again') },
    { title: 'Fork', sub: 'a new session that goes on from here', go: () => change('session/fork', { session: row.session }).then((it) => visit(it.session)).catch(failed) },
    { title: 'Move to the bin', sub: 'deleted after 30 days', go: () => act('session/bin', {}, 'In the bin: `linger restore` takes it out')().then(() => (location.hash = '')) },
  ];
  choose(titleOf(row), 'Action', async (words) => choices.filter((it) => it.title.toLowerCase().includes(words.toLowerCase())), (it) => it.go());
}

const showKeys = () => dialog('Keys', el('dl', { class: 'keys' }, KEYS.map(([key, what]) => [el('dt', {}, key.split(' ').map((it) => el('kbd', {}, it))), el('dd', {}, what)])));

const THEMES = { auto: '◐', light: '○', dark: '●' }; // Light and dark

function theme(name) {
  document.documentElement.dataset.theme = name;
  fill(byId('theme'), THEMES[name]);
  byId('theme').setAttribute('aria-label', `Colours: ${name}`);
  kept('theme', name);
}

byId('theme').addEventListener('click', () => {
  const names = Object.keys(THEMES);
  theme(names[(names.indexOf(document.documentElement.dataset.theme) + 1) % names.length]);
});
theme(kept('theme') in THEMES ? kept('theme') : 'auto');

// Buttons and keys.
const press = { new: createSession, inbox: () => (location.hash = 'inbox'), find: search, keys: showKeys, kinds: chooseKinds, more: moreActions, latest: () => view?.feed.toEnd() };
for (const [id, fn] of Object.entries(press)) byId(id).addEventListener('click', fn);
const drawer = (open) => byId('menu').setAttribute('aria-expanded', String(document.body.classList.toggle('side', open)));
byId('menu').addEventListener('click', () => drawer(true));
byId('main').addEventListener('click', (event) => event.target === byId('main') && drawer(false));
byId('logout').addEventListener('click', () => http('/logout', { method: 'POST' }).then(() => askForCode()).catch(failed));
byId('login-form').addEventListener('submit', (event) => {
  event.preventDefault();
  const said = byId('login-code').value.trim();
  login(/[#&]code=([^&\s]+)/.exec(said)?.[1] ?? said).then(begin, askForCode);
});

const SHORT = { '/': search, b: press.inbox, c: createSession, p: () => byId('prompt').focus(), g: press.latest, '?': showKeys,
  '[': () => sessions.beside(-1) && visit(sessions.beside(-1)), ']': () => sessions.beside(1) && visit(sessions.beside(1)) };

// The question that keys answer: the one with the focus, else the first. Only it shows its keys.
const asked = () => cards.get(document.activeElement?.closest?.('.question')?.dataset.question) ?? shownCards()[0];
function markKeys() {
  const [it, isWriting] = [asked(), byId('prompt').value !== ''];
  for (const one of cards.values()) one.node.classList.toggle('keys', one === it && !isWriting);
}
for (const name of ['focusin', 'focusout', 'input']) addEventListener(name, () => setTimeout(markKeys));

addEventListener('keydown', (event) => {
  if (byId('app').hidden || document.querySelector('dialog[open]')) return;
  if (event.key === 'Escape') drawer(false);
  if (event.key === 'Escape' && event.shiftKey && view) return void compose.cancel();
  if (event.key === 'Escape' && isTyping(event.target)) return event.target.blur();
  if (event.target === byId('prompt')) return void asked()?.keyAlone(event, event.target);
  if (isTyping(event.target) || event.ctrlKey || event.metaKey || event.altKey) return;
  if (asked()?.key(event) || SHORT[event.key]?.() !== undefined || event.key in SHORT) event.preventDefault();
});

// The laptop wakes, the network is back, the page is looked at again: read on from the cursor at once. While the page is
// hidden its session is not attached, so that the daemon may notify.

addEventListener('hashchange', route);
addEventListener('unauthorized', () => askForCode());
for (const name of ['online', 'pageshow', 'focus']) addEventListener(name, () => [everything, view?.stream].forEach((it) => it?.poke()));
document.addEventListener('visibilitychange', () => {
  if (!view?.ready) return;
  if (document.hidden) view.stream.stop();
  else view.stream.start(view.stream.cursor);
});

begin().catch((error) => add(document.body, [error.message]));
