// A list of any length in a scroller: what is far from the window is room without elements.
//
// Items lie in blocks of some dozen. A block near the window has elements, another one is as high as it was, or as high as
// blocks are on average. When a block above the window changes its height the scroller moves by the same, so that what a
// person reads stays where it is; at the end of the list it stays at the end.

import { el } from './dom.js';

const BLOCK = 10; // Items of a block; a block is drawn in one go
const FIRST = 300; // Items that have their place at once: a few windows; those before them follow in slices
const GUESS = 64; // The height of an item that was never drawn, in pixels
const NEAR = 1200; // How far from the window blocks are drawn, in pixels
const SLICE_MS = 20; // How long blocks are drawn without letting the browser paint
const END = 48; // Nearer to the end than this counts as at the end, in pixels

export class Feed {
  // `draw(item)` gives `{ node, update() }`.
  constructor(scroller, draw, moved) {
    Object.assign(this, { scroller, draw, moved, atEnd: true, top: 0 });
    this.node = el('div', { class: 'feed', role: 'feed', 'aria-label': 'Stream of the session' });
    scroller.replaceChildren(this.node);
    this.watch = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) {
        const block = this.at.get(target);
        if (!block) continue;
        block.near = isIntersecting;
        if (isIntersecting || block.drawn) this.wanted.add(block);
      }
      this.schedule();
    }, { root: scroller, rootMargin: `${NEAR}px 0px` });
    this.scrolled = () => {
      const { scrollTop, scrollHeight, clientHeight } = scroller;
      // Content that grows is no reason to leave the end: only a person who scrolls up is.
      if (scrollTop < this.top || !this.atEnd) this.atEnd = scrollHeight - scrollTop - clientHeight < END;
      this.top = scrollTop;
      this.moved(this.atEnd);
    };
    scroller.addEventListener('scroll', this.scrolled, { passive: true });
    this.sizes = new ResizeObserver(() => this.atEnd && this.toEnd());
    this.sizes.observe(scroller);
    this.sizes.observe(this.node);
    this.set([]);
  }
  close() {
    this.watch.disconnect();
    this.sizes.disconnect();
    this.scroller.removeEventListener('scroll', this.scrolled);
    this.closed = true;
  }

  // Shows these items and no others: the last ones at once, those before them in slices.
  set(items) {
    this.watch.disconnect();
    Object.assign(this, { of: new Map(), at: new Map(), before: [...items], last: null, wanted: new Set(), dirty: new Set(), views: new Map() });
    this.node.replaceChildren();
    for (let n = 0; n < FIRST && this.before.length; n += BLOCK) this.place();
    [...this.at.values()].slice(0, 2).forEach((block) => this.mount(block));
    this.toEnd();
    this.schedule();
  }
  block(items, where) {
    const block = { items, node: el('div', { class: 'block' }), drawn: false, near: false };
    this.at.set(block.node, block);
    for (const item of items) this.of.set(item, block);
    this.node[where](block.node);
    this.watch.observe(block.node);
    return block;
  }

  // Gives the last of those that have none a place, above all others.
  place() {
    const block = this.block(this.before.splice(-BLOCK), 'prepend');
    this.last ??= block;
    block.node.style.height = `${block.items.length * GUESS}px`;
    if (!this.atEnd) this.scroller.scrollTop += block.items.length * GUESS;
  }
  add(item) {
    if (!(this.last?.items.length < BLOCK)) this.last = this.block([], 'append');
    this.last.items.push(item);
    this.of.set(item, this.last);
    // The last block has elements, so that what streams into it is seen.
    if (this.last.drawn) this.last.node.append(this.view(item).node);
    else this.mount(this.last);
    this.schedule();
  }
  changed(item) {
    if (this.views.has(item)) {
      this.dirty.add(item);
      this.schedule();
    }
  }
  view(item) {
    const view = this.draw(item);
    this.views.set(item, view);
    return view;
  }
  mount(block) {
    if (block.drawn) return;
    const before = block.node.offsetHeight;
    const above = block.node.offsetTop < this.scroller.scrollTop;
    block.node.style.height = '';
    block.node.append(...block.items.map((item) => this.view(item).node));
    block.drawn = true;
    if (above && !this.atEnd) this.scroller.scrollTop += block.node.offsetHeight - before;
  }
  unmount(block) {
    // Never what has the focus or a selection.
    if (!block.drawn || block === this.last || block.node.contains(document.activeElement)) return;
    if (!getSelection().isCollapsed && getSelection().containsNode(block.node, true)) return;
    block.node.style.height = `${block.node.offsetHeight}px`;
    block.node.replaceChildren();
    block.items.forEach((item) => this.views.delete(item));
    block.drawn = false;
  }
  schedule() {
    if (this.frame || this.closed) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.flush();
    });
  }
  flush() {
    const began = performance.now();
    for (const item of this.dirty) {
      this.views.get(item)?.update();
      this.dirty.delete(item);
      if (performance.now() - began > SLICE_MS) break;
    }
    while (this.before.length && performance.now() - began < SLICE_MS) this.place();
    // The nearest to the window first.
    const middle = this.scroller.scrollTop + this.scroller.clientHeight / 2;
    const far = (block) => Math.abs(block.node.offsetTop - middle);
    const wanted = this.wanted.size > 1 ? [...this.wanted].sort((a, b) => far(a) - far(b)) : this.wanted;
    for (const block of wanted) {
      if (performance.now() - began > SLICE_MS) break;
      this.wanted.delete(block);
      if (block.near) this.mount(block);
      else this.unmount(block);
    }
    if (this.atEnd) this.toEnd();
    if (this.wanted.size || this.dirty.size || this.before.length) this.schedule();
  }
  toEnd() {
    this.scroller.scrollTop = this.scroller.scrollHeight;
    this.atEnd = true;
  }

  // Brings an item into the window, and marks it.
  show(item) {
    this.atEnd = false;
    while (this.before.length && !this.of.has(item)) this.place();
    const block = this.of.get(item);
    if (!block) return;
    this.mount(block);
    const { node } = this.views.get(item);
    node.scrollIntoView({ block: 'center' });
    node.classList.remove('found');
    requestAnimationFrame(() => node.classList.add('found'));
    node.tabIndex = -1;
    node.focus({ preventScroll: true });
  }
}
