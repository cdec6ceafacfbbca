// The list of sessions: a tree, each with its state and cost, kept up to date by the events of all sessions.

import { cleanLine } from './clean.js';
import { byId, el, failed, fill } from './dom.js';
import { age, cost, shortPath, stateOf, titleOf } from './format.js';
import { call } from './wire.js';

const MOST = 200; // Rows that are drawn unasked
const TOGETHER_MS = 150; // Rows of changed sessions are asked for together, this long after the first change
const SINGLY = 8; // More changed sessions than this are asked for as the whole list

export class Sessions {
  // `on` has `visit(id)` and `changed()`.
  constructor(on) {
    Object.assign(this, { on, rows: new Map(), nodes: new Map(), closed: new Map(), stale: new Set(), most: MOST, current: null });
    this.tree = byId('tree');
    this.tree.addEventListener('keydown', (event) => this.key(event));
    byId('filter').addEventListener('input', () => this.draw());
  }
  async load() {
    this.stale.clear();
    const rows = await call('session/list');
    this.rows = new Map(rows.map((row) => [row.session, row]));
    this.draw();
    this.on.changed();
  }

  // Something happened in a session: its row is asked for again.
  touch(session) {
    this.stale.add(session);
    this.timer ??= setTimeout(() => {
      this.timer = undefined;
      this.refresh().catch(failed);
    }, TOGETHER_MS);
  }
  async refresh() {
    const ids = [...this.stale];
    if (ids.length > SINGLY) return this.load();
    this.stale.clear();
    for (const id of ids) {
      const row = (await call('session/list', { matching: id })).find((it) => it.session === id);
      if (row) this.rows.set(id, row);
      else this.rows.delete(id);
    }
    this.draw();
    return this.on.changed();
  }

  // The rows with each child below its parent: `[row, depth, hasChildren]`.
  ordered() {
    const words = byId('filter').value.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (row) => words.every((word) => `${titleOf(row)} ${row.session} ${row.cwd} ${row.model} ${row.agent ?? ''}`.toLowerCase().includes(word));
    const rows = [...this.rows.values()].sort((a, b) => b.updated_at - a.updated_at);
    if (words.length) return rows.filter(fits).map((row) => [row, 1, false]);
    const below = Map.groupBy(rows, (row) => row.parent);
    const out = [];
    const put = (row, depth, seen) => {
      const children = seen.has(row.session) ? [] : below.get(row.session) ?? [];
      out.push([row, depth, children.length > 0]);
      if (this.isOpen(row, children)) for (const child of children) put(child, depth + 1, new Set(seen).add(row.session));
    };
    for (const row of rows) if (!row.parent || !this.rows.has(row.parent)) put(row, 1, new Set());
    return out;
  }

  // Open unless it was closed, or all below it is over and elsewhere.
  isOpen(row, children) {
    const closed = this.closed.get(row.session);
    if (closed !== undefined) return !closed;
    return row.session === this.current || children.some((it) => it.state !== 'idle' || it.session === this.current);
  }
  draw() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      const ordered = this.ordered();
      const nodes = ordered.slice(0, this.most).map((it) => this.row(...it));
      const left = ordered.length - nodes.length;
      if (left > 0) nodes.push(el('button', { class: 'more', click: () => {
        this.most *= 2;
        this.draw();
      } }, `${left} more`));
      if (!ordered.length) nodes.push(el('p', { class: 'hint' }, 'No sessions here yet.'));
      // Only what has moved is moved: the focus stays.
      nodes.forEach((node, n) => this.tree.children[n] !== node && this.tree.insertBefore(node, this.tree.children[n] ?? null));
      while (this.tree.children.length > nodes.length) this.tree.lastChild.remove();
      for (const id of this.nodes.keys()) if (!this.rows.has(id)) this.nodes.delete(id);
      const items = [...this.tree.querySelectorAll('[role=treeitem]')];
      const first = items.find((it) => it === document.activeElement) ?? items.find((it) => it.dataset.session === this.current) ?? items[0];
      items.forEach((it) => (it.tabIndex = it === first ? 0 : -1));
    });
  }
  row(row, depth, hasChildren) {
    const [state, kind] = stateOf(row);
    const isOpen = hasChildren ? this.isOpen(row, [...this.rows.values()].filter((it) => it.parent === row.session)) : null;
    const words = [titleOf(row), state, kind, depth, isOpen, cost(row.usage), row.queued, row.agent, shortPath(row.cwd), age(row.updated_at),
      row.session === this.current].join('\n');
    const known = this.nodes.get(row.session);
    if (known?.words === words) return known.node;
    const node = known?.node ?? el('div', { role: 'treeitem', 'data-session': row.session, tabIndex: -1, click: (event) => {
      if (event.target.closest('.fold')) this.fold(row.session);
      else this.on.visit(row.session);
    } });
    node.className = `session depth-${Math.min(depth, 6)} ${kind}`;
    node.setAttribute('aria-level', depth);
    node.setAttribute('aria-selected', String(row.session === this.current));
    if (isOpen === null) node.removeAttribute('aria-expanded');
    else node.setAttribute('aria-expanded', String(isOpen));
    const agent = row.agent ?? row.delegated?.agent;
    fill(node, el('span', { class: `dot ${kind}`, 'aria-hidden': 'true' }),
      el('span', { class: 'title' }, agent ? el('em', {}, `${cleanLine(agent)} `) : null, cleanLine(titleOf(row))),
      hasChildren ? el('span', { class: 'fold', 'aria-hidden': 'true' }, isOpen ? '▾' : '▸') : null,
      el('span', { class: 'sub' }, [state, row.queued ? `${row.queued} queued` : '', row.drafts ? `${row.drafts} draft${row.drafts > 1 ? 's' : ''}` : '', cost(row.usage), depth === 1 ? cleanLine(shortPath(row.cwd)) : '',
        age(row.updated_at)].filter(Boolean).join(' · ')));
    this.nodes.set(row.session, { node, words });
    return node;
  }
  fold(session) {
    const children = [...this.rows.values()].filter((it) => it.parent === session);
    this.closed.set(session, this.isOpen(this.rows.get(session), children));
    this.draw();
  }
  key(event) {
    const items = [...this.tree.querySelectorAll('[role=treeitem]')];
    const at = items.indexOf(document.activeElement);
    if (at < 0) return;
    const id = items[at].dataset.session;
    const isOpen = items[at].getAttribute('aria-expanded');
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: items.length - 1 }[event.key];
    if (to !== undefined) items[to]?.focus();
    else if (event.key === 'Enter' || event.key === ' ') this.on.visit(id);
    else if ((event.key === 'ArrowRight' && isOpen === 'false') || (event.key === 'ArrowLeft' && isOpen === 'true')) this.fold(id);
    else if (event.key === 'ArrowLeft') items.find((it) => it.dataset.session === this.rows.get(id)?.parent)?.focus();
    else return;
    event.preventDefault();
  }

  // The session before or after the current one in the list.
  beside(step) {
    const ids = this.ordered().map(([row]) => row.session);
    return ids[ids.indexOf(this.current) + step];
  }
}
