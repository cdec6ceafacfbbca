// A session as its events make it: the items of its stream, in order, and what is open (calls, questions, queued prompts).
//
// Replayed and live events take the same way. Deltas carry offsets in bytes, so one that comes twice changes nothing.
// Deliberately absent: elements; `items.js` shows what is here.

import { DECISIONS } from './format.js';

const [encoder, decoder] = [new TextEncoder(), new TextDecoder()];

const OUTPUT = 400_000; // Characters of a stream of text or output that are kept; the whole comes with the event that ends it

// The kinds of items that can be switched off.
export const GROUPS = {
  thinking: 'Thinking', tools: 'Tool calls', questions: 'Answered questions', plans: 'Plans', children: 'Child sessions',
  notices: 'Notices', changes: 'Changes of model, mode and context', usage: 'Ends of turns, with cost',
};

export const textOf = (content) => (content ?? []).flatMap((it) =>
  ({ __proto__: null, text: it.text, resource: it.uri, resource_link: `${it.name}: ${it.uri}` })[it.type] ?? []).join('\n');

export class Log {
  // `on` has `added(item)` and `changed(item)`.
  constructor(on) {
    Object.assign(this, { on, items: [], byKey: new Map(), queued: new Map(), questions: new Map(), by: new Map() });
    Object.assign(this, { turn: null, calls: new Map(), live: false, model: '' });
  }
  event(event, answered) { KINDS[event.kind]?.(this, event, answered); }

  // A new item, or the one of this key with new fields.
  add(key, item, event) {
    const known = this.byKey.get(key);
    if (known) return this.touch(known, item);
    Object.assign(item, { key, at: event.at, seq: event.seq, turn: event.turn });
    // The first words of a turn have the name of their model above them.
    if (['text', 'thinking'].includes(item.type) && this.spoke !== event.turn) {
      this.spoke = event.turn;
      item.head = item.model ?? this.model;
    }
    this.byKey.set(key, item);
    this.items.push(item);
    this.on.added(item);
    return item;
  }
  touch(item, fields) {
    Object.assign(item, fields);
    this.on.changed(item);
    return item;
  }
  line(event, group, text, more) {
    this.add(`e${event.seq ?? `${event.kind}${this.items.length}`}`, { type: 'line', group, text, ...more }, event);
  }

  // Adds a piece at its offset: what is there already is left out, and what was dropped is marked.
  append(item, field, { offset, text }) {
    const size = encoder.encode(text).length;
    let piece = text;
    if (item.done || offset + size <= item.bytes) return;
    if (offset < item.bytes) piece = decoder.decode(encoder.encode(text).subarray(item.bytes - offset));
    if (offset > item.bytes) piece = `\n[${offset - item.bytes} bytes are left out here]\n${piece}`;
    item.bytes = offset + size;
    item[field] = (item[field] + piece).slice(-OUTPUT);
    this.on.changed(item);
  }
  delta(event, type, more) {
    const key = `${event.message}.${event.block}`;
    this.append(this.byKey.get(key) ?? this.add(key, { type, text: '', bytes: 0, message: event.message, ...more }, event), 'text', event);
  }
  call(event, fields) {
    const id = event.call_id ?? fields.id;
    const item = this.calls.get(id);
    if (item) return this.touch(item, fields);
    const made = { type: 'call', group: 'tools', id, state: 'pending', output: '', written: '', bytes: 0, ...fields };
    return this.calls.set(id, this.add(`c${id}`, made, event)).get(id);
  }
  assistant(event) {
    const { message, content, interrupted, model } = event;
    const rest = { done: true, interrupted, model, message };
    content.forEach((block, n) => {
      const { type, text = '', tool, part } = block;
      if (type === 'text') this.add(`${message}.${n}`, { type, text, ...rest }, event);
      else if (type === 'thinking') this.add(`${message}.${n}`, { type, group: 'thinking', text, ...rest }, event);
      else if (type === 'hosted') this.add(`${message}.${n}`, { type, group: 'tools', tool, part, text, ...rest }, event);
      else if (type === 'tool_use') this.call(event, { id: block.call_id, tool: block.name, input: block.input, message, state: 'pending', bytes: 0 });
      else if (type === 'cut_tool_use') this.call(event, { id: block.call_id, tool: block.name, message, state: 'done', outcome: 'cancelled' });
    });
    // What was streamed and is no block of the whole message.
    for (const item of this.items.slice(-content.length - 20)) {
      if (item.message === message && item.type !== 'call' && !item.done) this.touch(item, { done: true, interrupted });
    }
    if (event.cut) this.line(event, 'notices', 'cut at the token limit');
  }
  asked(event, row, answered) {
    if (!answered) this.questions.set(row.question, row);
    // The card of a call tells of its permission.
    const call = row.kind === 'permission' && this.calls.get(row.call);
    if (call) return this.touch(this.byKey.set(`q${row.question}`, call) && call, { asked: answered ? '' : 'waits for an answer' });
    return this.add(`q${row.question}`, { type: 'question', group: answered ? 'questions' : null, row, answered }, event);
  }
  resolved(id, said, { by, reason }) {
    this.questions.delete(id);
    const item = this.byKey.get(`q${id}`);
    const words = `${said}${by ? ` by ${by}` : ''}${reason ? `: ${reason}` : ''}`;
    if (item?.type === 'call') this.touch(item, { asked: words });
    else if (item) this.touch(item, { answered: true, group: 'questions', said: words });
  }
}

// What each event does; others are skipped.
const KINDS = {
  __proto__: null,
  caught_up: (log) => (log.live = true),
  session_created: (log, { model }) => (log.model = model),
  prompt_accepted(log, event) {
    log.by.set(event.prompt, event.by);
    log.queued.set(event.prompt, { ...event, text: event.command || textOf(event.content) });
  },
  prompt_unqueued: (log, { prompt }) => log.queued.delete(prompt),
  prompt_drafted: (log, { prompt }) => log.queued.has(prompt) && log.queued.set(prompt, { ...log.queued.get(prompt), draft: true }),
  draft_sent(log, { prompt }) {
    const sent = log.queued.get(prompt);
    // It is queued behind the others.
    if (log.queued.delete(prompt)) log.queued.set(prompt, { ...sent, draft: false, when: 'queue' });
  },
  turn_started(log, { turn, at, prompt }) {
    log.turn = { turn, at };
    if (log.queued.get(prompt)?.compact) log.queued.delete(prompt);
  },
  message(log, event) {
    if (event.role === 'assistant') return log.assistant(event);
    const content = (event.content ?? []).filter((it) => it.type !== 'tool_result');
    log.queued.delete(event.prompt);
    if (event.asks) return log.line(event, 'notices', `linger asks in your place (${event.asks})`, { detail: textOf(content) });
    const by = log.by.get(event.prompt) ?? '';
    return content.length && log.add(event.message, { type: 'prompt', content, by, prompt: event.prompt }, event);
  },
  text_delta: (log, event) => log.delta(event, 'text'),
  thinking_delta: (log, event) => log.delta(event, 'thinking', { group: 'thinking' }),
  tool_call_delta: (log, event) => log.append(log.call(event, { tool: event.name, message: event.message, state: 'writing' }), 'written', event),
  hosted_delta: (log, event) => log.delta(event, 'hosted', { group: 'tools', tool: event.tool, part: event.part }),
  message_superseded: (log, { message }) => log.items.forEach((it) => it.message === message && log.touch(it, { superseded: true })),
  command_started: (log, event) => log.call(event, { tool: 'bash', action: event.command, why: 'a line of your command' }),
  check_started(log, event) {
    const tries = event.tries ? `, ${(event.failed ?? 0) + 1} of ${event.tries}` : '';
    log.call(event, { tool: 'bash', action: event.command, why: `the check of this turn${tries}` });
  },
  tool_started(log, event) {
    const { tool, action, tool_kind: kind } = event;
    log.call(event, { tool, action, kind, input: log.calls.get(event.call_id)?.input ?? event.input, state: 'running' });
  },
  tool_output_delta: (log, event, _, item = log.calls.get(event.call_id)) =>
    item && item.state !== 'done' && log.append(item, 'output', event),
  tool_finished(log, event) {
    const { outcome, is_error: isError, diff, changes, exit, ms, blob, content } = event;
    const images = (content ?? []).filter((it) => it.type === 'image');
    log.call(event, { state: 'done', outcome, isError, diff, changes, exit, ms, blob, output: textOf(content), images });
  },
  permission_requested(log, event, answered) {
    const { permission: question, call_id: call, tool, action, input, cwd, digest, grant, rule, why, position, changes, about, at } = event;
    const row = { question, kind: 'permission', blocks: 'call', call, tool, action, input, cwd, digest, grant, rule, why, position, changes, about, at };
    log.asked(event, row, answered);
  },
  question_asked: (log, event, answered) => log.asked(event, { ...event.asked, question: event.question, at: event.at }, answered),
  permission_resolved: (log, event) => log.resolved(event.permission, DECISIONS[event.decision] ?? event.decision, event),
  question_resolved: (log, event) => log.resolved(event.question, event.answer ? `answered: ${event.answer}` : 'withdrawn', event),
  turn_finished(log, event) {
    const ms = log.turn?.turn === event.turn ? event.at - log.turn.at : null;
    log.turn = null;
    for (const [id, row] of log.questions) if (row.blocks !== 'nothing') log.resolved(id, 'withdrawn', {});
    const { stop_reason: reason, detail, hint, usage, steps, answer, seq } = event;
    const group = reason === 'end_turn' ? 'usage' : null;
    log.add(`e${seq}`, { type: 'end', group, reason, detail, hint, usage, steps, answer, ms }, event);
  },
  notice: (log, event) => log.line(event, 'notices', event.text, { level: event.level, hint: event.hint }),
  session_changed(log, event) {
    const named = ['model', 'mode', 'effort', 'name', 'patience', 'unattended', 'title'].filter((it) => typeof event[it] === 'string');
    const words = named.map((it) => `${it}: ${event[it]}`);
    if (event.stands_in_for) words.push(`stands in for ${event.stands_in_for}`);
    if (event.fallback) words.push(`fallback: ${event.fallback.join(', ') || 'none'}`);
    if (event.additional_directories) words.push(`directories: ${event.additional_directories.join(', ') || 'none added'}`);
    if (event.tools) words.push(`tools: ${event.tools.join(', ').replace(/^\*$/, 'all')}`);
    if (event.budget) words.push(`budget: ${JSON.stringify(event.budget)}`);
    log.model = event.model ?? log.model;
    if (words.length) log.line(event, 'changes', words.join(' · '));
  },
  plan: (log, event) => log.add(`p${event.turn}`, { type: 'plan', group: 'plans', entries: event.entries }, event),
  child_updated(log, event) {
    const { child, agent, status, doing, steps, usage, questions } = event;
    log.add(`k${child}`, { type: 'child', group: 'children', child, agent, status, doing, steps, usage, questions }, event);
  },
  background_started: (log, event) => log.line(event, 'tools', `in the background (${event.background}): ${event.command}`),
  background_ended(log, event) {
    const { code, signal } = event.exit ?? {};
    const how = event.reason ?? (signal ? `signal ${signal}` : `exit code ${code}`);
    log.line(event, 'tools', `${event.background} has ended: ${how}`, { detail: event.output });
  },
  compaction_started: (log, event) => log.line(event, 'changes', `writing a summary of ${event.messages} messages`),
  compacted(log, event) {
    log.queued.delete(event.prompt);
    const tokens = `${event.tokens_before} tokens became ${event.tokens_after}`;
    log.line(event, 'changes', `a summary stands for ${event.messages} older messages: ${tokens}`, { detail: event.summary });
  },
  compaction_failed(log, event) {
    log.queued.delete(event.prompt);
    log.line(event, 'notices', `no summary: ${event.reason}`, { level: 'warning' });
  },
  uncompacted: (log, event) => log.line(event, 'changes', `the summary was taken back: the model reads ${event.messages} messages again`),
  trimmed: (log, event) => log.line(event, 'changes', `older output is left out for the model: ${event.tokens_before} tokens became ${event.tokens_after}`),
  undone(log, event) {
    const left = (event.failed ?? []).map((it) => `left as it is: ${it.path}: ${it.reason}`);
    const kept = (event.uncertain ?? []).map((it) => `left as it is: ${it.path}: perhaps changed by something else`);
    const detail = [...(event.changes ?? []).map((it) => it.path), ...left, ...kept].join('\n');
    log.line(event, 'changes', event.redo ? 'changes were made again' : 'changes were undone', { detail });
  },
  forked: (log, event) => log.line(event, 'changes', `goes on from session ${event.origin.session}`),
  rewound(log, event) {
    log.items.forEach((it) => it.seq > event.to && log.touch(it, { superseded: true }));
    log.line(event, 'changes', `went back to before a prompt; what was left is in session ${event.branch}`);
  },
  lost: (log, event) => log.line(event, 'notices', `events ${event.first} to ${event.last} could not be read`, { level: 'error' }),
};
