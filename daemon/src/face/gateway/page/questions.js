// Questions: what is shown, and the keys and buttons that answer.
//
// Only what was shown can be allowed: of a long action the buttons that allow it wait until all of it was shown. An answer
// carries the digest of what was shown. Keys count on their own only, and not in the first moments, so that a word being
// typed when a question comes answers nothing. In the empty prompt a key answers once no other has followed it for a moment.

import { cleanExact, cleanLine } from './clean.js';
import { difference, rows } from './diff.js';
import { el, failed, fill, isTyping, toast } from './dom.js';
import { DECISIONS, age, shortPath } from './format.js';
import { argument, blobAt, parts } from './items.js';
import { Stream, change, http } from './wire.js';

const MOST = 8000; // Characters and lines of an action that are shown unasked
const LINES = 60;
const DEAF_MS = 600; // A question that is younger takes no keys
const ALONE_MS = 350; // A key in the empty prompt answers if none follows for this long
const COMPARED = 1 << 20; // Bytes of a file whose change is compared here; of a larger one the arguments are shown

// A card for a question. `on.answered()` is called once it has an answer, `on.visit(session)` opens its session.
export function card(row, on) {
  const node = el('section', { class: 'question deaf', 'aria-label': 'Question', tabIndex: -1, 'data-question': row.question });
  const state = { row, on, node, keys: new Map(), sent: false };
  const body = { permission, choice, form }[row.kind];
  const session = el('button', { class: 'link', click: () => on.visit(row.session) });
  // Which session asks, unless that is the one that is shown.
  state.name = (current, title) => {
    session.hidden = !row.session || row.session === current;
    session.textContent = cleanLine(title ?? row.session ?? '');
  };
  node.append(el('header', {}, el('span', { class: 'sign asks' }, '?'), el('h3', {}, headline(row)),
    session, el('time', { class: 'hint' }, age(row.at))));
  if (body) body(state);
  else node.append(el('p', {}, cleanExact(row.text ?? '')), el('p', { class: 'hint' }, 'This page cannot show a question of this kind; `linger inbox` may.'));
  if (row.digest) node.append(el('div', { class: 'digest' }, 'digest ', el('code', {}, cleanLine(row.digest))));
  setTimeout(() => node.classList.remove('deaf'), DEAF_MS);
  // The button of a key, if the key may answer.
  const meant = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || event.isComposing) return null;
    const button = state.keys.get(event.key.toLowerCase());
    return !button || button.disabled || node.classList.contains('deaf') ? null : button;
  };
  state.key = (event) => {
    const button = isTyping(event.target) ? null : meant(event);
    button?.click();
    return Boolean(button);
  };
  // A key in the empty prompt `field`: it is a letter of a word unless it stays alone.
  state.keyAlone = (event, field) => {
    const button = field.value === '' ? meant(event) : null;
    if (!button) return;
    setTimeout(() => {
      if (field.value !== event.key || !button.isConnected || button.disabled) return;
      field.value = '';
      field.dispatchEvent(new Event('input'));
      button.click();
    }, ALONE_MS);
  };
  return state;
}

function headline(row) {
  if (row.kind === 'permission') {
    const who = row.about === 'check' ? 'The check of this turn' : cleanLine(row.tool);
    const place = row.position ? el('span', { class: 'hint' }, `${row.position.number} of ${row.position.of}: `) : null;
    return [place, el('strong', {}, who), ' wants to run', row.cwd ? [' in ', el('span', { class: 'path' }, cleanExact(shortPath(row.cwd)))] : null];
  }
  return row.kind === 'form' ? 'Fill in a form' : 'Choose';
}

async function send(state, answer, more = {}) {
  if (state.sent) return;
  state.sent = true;
  const buttons = [...state.node.querySelectorAll('button, input, textarea, select')].filter((it) => !it.disabled);
  buttons.forEach((it) => (it.disabled = true));
  const { row, on } = state;
  try {
    const params = { question: row.question, answer, digest: row.digest, ...more };
    await change('question/answer', params);
    on.answered();
  } catch (error) {
    state.sent = false;
    buttons.forEach((it) => (it.disabled = false));
    if (error.code === -31001) {
      const { answer: won, decision, by } = error.data ?? {};
      toast(`Already answered: ${DECISIONS[won ?? decision] ?? won ?? decision ?? 'withdrawn'}${by ? ` by ${by}` : ''}`);
      on.answered();
    } else if (error.code === -31027 || error.code === -31003) on.answered();
    else if (error.code === -31030 && state.fault) fill(state.fault, error.message);
    else failed(error);
  }
}

// A big button with its key; the text below says what it means.
function big(state, key, label, more, press, kind = '') {
  const button = el('button', { class: `big ${kind}`, click: press, 'aria-keyshortcuts': key },
    el('span', {}, label, ' ', el('kbd', {}, key)), more ? el('small', {}, more) : null);
  state.keys.set(key, button);
  return button;
}

function permission(state) {
  const { row, node } = state;
  const shown = el('div', { class: 'action' });
  const grant = row.grant ? cleanExact(row.grant) : 'this call';
  const allow = [ // `allow_always` is for no token.
    big(state, 'y', 'Allow once', null, () => send(state, 'allow_once'), 'yes'),
    big(state, 's', 'In this session', grant, () => send(state, 'allow_session')),
  ];
  const lock = (isCut) => allow.forEach((it) => (it.disabled = isCut));
  const word = el('input', { placeholder: 'Why not? The model reads this', 'aria-label': 'Reason', autocomplete: 'off', hidden: true, keydown: (event) => {
    if (event.key === 'Enter' && !event.isComposing) send(state, 'reject_once', { reason: word.value });
    if (event.key === 'Escape') {
      word.hidden = true;
      node.focus();
    }
  } });
  const show = (whole, diff) => {
    const rest = parts(row).filter(([name]) => !diff || !['old', 'new', 'edits', 'content'].includes(name));
    const texts = [row.action, ...rest.map((it) => JSON.stringify(it))];
    const isLong = !whole && (texts.join('').length > MOST || texts.join('\n').split(/\n|\\n/).length > LINES || (diff?.length ?? 0) > LINES);
    lock(isLong);
    const cut = (text) => (isLong ? text.slice(0, MOST).split('\n').slice(0, LINES / 2).join('\n') : text);
    fill(shown, row.rule ? el('p', { class: 'hint' }, 'The rule ', el('code', {}, cleanExact(row.rule)), ' asks.') : null,
      row.why ? el('p', { class: 'hint' }, 'Asks because ', cleanExact(row.why), '.') : null,
      el('pre', { class: 'exact main', tabIndex: 0, 'aria-label': 'What would run' }, cleanExact(cut(row.action))),
      rest.length ? el('dl', {}, rest.map(([name, it]) => argument([name, typeof it === 'string' ? cut(it) : it]))) : null,
      diff ? rows(isLong ? diff.slice(0, LINES / 2) : diff) : null,
      isLong ? el('button', { class: 'more', click: () => show(true, diff) }, 'Show all of it before you can allow it ', el('kbd', {}, 'v')) : null);
    state.keys.set('v', shown.querySelector('.more'));
  };
  show(false, null);
  node.append(shown, el('div', { class: 'buttons' }, allow, big(state, 'n', 'Deny', null, () => send(state, 'reject_once'), 'no'),
    big(state, 'r', 'Deny, and say why', null, () => {
      word.hidden = false;
      word.focus();
    })), word);
  if (['edit', 'write'].includes(row.tool)) compare(row).then((diff) => diff && !state.sent && show(false, diff), () => {});
}

// What a change of a file would do, from the contents before and after.
async function compare(row) {
  const changes = row.changes ?? (row.session ? await changesOf(row) : null);
  const [it] = changes ?? [];
  if (changes?.length !== 1 || !it.after || it.bytes > COMPARED || (!it.before && it.kind !== 'create')) return null;
  const read = async (blob) => (blob ? (await http(blobAt(blob, row.session))).text() : '');
  const [before, after] = await Promise.all([read(it.before), read(it.after)]);
  return difference(before, after);
}

// `question/list` leaves the changes out: they are in the event that asked.
function changesOf(row) {
  return new Promise((found) => {
    const params = { sessions: row.session, kinds: 'permission_requested' };
    const end = (changes) => {
      stream.stop();
      found(changes);
    };
    const stream = new Stream('/events', params, {
      event({ event }) {
        if (event.kind === 'caught_up') end(null);
        else if (event.permission === row.question) end(event.changes);
      },
      state: (word) => word !== 'open' && end(null),
    });
    stream.start();
  });
}

function choice(state) {
  const { row, node } = state;
  const word = el('input', { placeholder: 'A word with it (optional)', 'aria-label': 'A word with the answer', autocomplete: 'off' });
  const more = () => (word.value.trim() ? { reason: word.value.trim() } : {});
  const buttons = (row.options ?? []).map((option, n) => {
    const label = cleanLine(option.label || option.name);
    return big(state, n < 9 ? String(n + 1) : '', label, label === option.name ? null : cleanLine(option.name), () => send(state, option.name, more()));
  });
  const takesWords = ['circles', 'budget', 'plan'].includes(row.about);
  node.append(el('div', { class: 'action' }, el('p', { class: 'said plain' }, cleanExact(row.text ?? ''))), el('div', { class: 'buttons' }, buttons), takesWords ? word : '');
}

function form(state) {
  const { row, node } = state;
  const schema = row.schema ?? {};
  const fields = Object.entries(schema.properties ?? {}).map(([name, it]) => field(name, it ?? {}, schema.required?.includes(name)));
  state.fault = el('p', { class: 'fault', role: 'alert' });
  const accept = () => {
    const value = {};
    fill(state.fault);
    for (const it of fields) {
      try {
        const said = it.read();
        if (said !== undefined) value[it.name] = said;
      } catch {
        return fill(state.fault, `${it.name}: not JSON`);
      }
    }
    return send(state, 'accept', { value });
  };
  node.append(el('div', { class: 'action' }, el('p', { class: 'said plain' }, cleanExact(row.text ?? ''))),
    el('form', { class: 'fields', submit: (event) => {
      event.preventDefault();
      accept();
    } }, fields.map((it) => it.node), state.fault, el('div', { class: 'buttons' }, big(state, 'y', 'Send', null, () => {}, 'yes'),
      Object.assign(big(state, 'n', 'Decline', null, () => send(state, 'decline'), 'no'), { type: 'button' }))));
}

// One field of a form, by its schema; what this page has no input for is written as JSON.
function field(name, schema, isRequired) {
  const id = `f${Math.random().toString(36).slice(2)}`;
  const label = el('label', { for: id }, cleanLine(schema.title ?? name), isRequired ? '' : el('span', { class: 'hint' }, ' (optional)'));
  const about = schema.description ? el('small', { class: 'hint' }, cleanLine(schema.description)) : null;
  const make = (node, read) => ({ name, read, node: el('div', { class: 'field' }, label, node, about) });
  const isMany = schema.type === 'array';
  const from = (isMany ? schema.items : schema) ?? {};
  const titled = from.oneOf ?? from.anyOf;
  const values = from.enum ?? titled?.map((it) => it.const) ?? [];
  if (values.length) {
    const names = from.enumNames ?? titled?.map((it) => it.title) ?? [];
    const select = el('select', { id, multiple: isMany }, isRequired || isMany ? null : el('option', { value: '' }, '–'),
      values.map((it, n) => el('option', { value: String(n), selected: [schema.default].flat().includes(it) }, cleanLine(String(names[n] ?? it)))));
    const chosen = () => [...select.selectedOptions].flatMap((it) => (it.value ? [values[it.value]] : []));
    return make(select, () => (isMany && chosen().length ? chosen() : chosen()[0]));
  }
  if (schema.type === 'boolean') {
    const box = el('input', { id, type: 'checkbox', checked: schema.default === true });
    return make(box, () => box.checked);
  }
  if (schema.type === 'number' || schema.type === 'integer') {
    const input = el('input', { id, type: 'number', value: schema.default ?? '', step: schema.type === 'integer' ? 1 : 'any' });
    return make(input, () => (input.value === '' ? undefined : Number(input.value)));
  }
  if (schema.type === 'string') {
    const input = el(schema.maxLength && schema.maxLength <= 200 ? 'input' : 'textarea', { id, value: schema.default ?? '', rows: 2 });
    return make(input, () => (input.value === '' && !isRequired ? undefined : input.value));
  }
  const area = el('textarea', { id, placeholder: 'JSON', value: schema.default === undefined ? '' : JSON.stringify(schema.default) });
  return make(area, () => (area.value.trim() ? JSON.parse(area.value) : undefined));
}
