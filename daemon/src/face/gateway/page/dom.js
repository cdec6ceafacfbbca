// The only place that makes elements. Text becomes text nodes, cleaned; there is no way from a string to HTML here.
//
// `el('button', { class: 'big', click: fn, 'aria-label': 'Send' }, 'Send')`. Attributes that could run or style something
// (`on…`, `style`, `srcdoc`) are not set from strings, and `href` only by `link`.

import { clean } from './clean.js';

export const byId = (id) => document.getElementById(id);
const EVENTS = new Set(['click', 'input', 'change', 'submit', 'keydown', 'toggle', 'paste', 'close', 'focus']);
const PROPERTIES = new Set(['value', 'checked', 'selected', 'step', 'disabled', 'open', 'hidden', 'tabIndex', 'type', 'rows', 'htmlFor']);

export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (EVENTS.has(name)) node.addEventListener(name, value);
    else if (name === 'class') node.className = value;
    else if (PROPERTIES.has(name)) node[name] = value;
    else if (/^(aria-|data-)|^(role|title|id|name|placeholder|for|dir|lang|list|accept|multiple|autocomplete)$/.test(name))
      node.setAttribute(name, clean(value === true ? '' : value));
    else throw new Error(`no attribute ${name} is set here`);
  }
  return add(node, children);
}
export function add(node, children) {
  for (const child of children.flat(9)) {
    if (child === undefined || child === null || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(clean(child)));
  }
  return node;
}

export const fill = (node, ...children) => {
  node.replaceChildren();
  return add(node, children);
};

const SCHEMES = ['http:', 'https:', 'mailto:']; // The schemes that a link may have; whatever else is text

export function target(text) {
  try {
    const url = new URL(text);
    return SCHEMES.includes(url.protocol) && !url.username && !url.password ? url : null;
  } catch {
    return null;
  }
}

// A link with its target beside it, unless the text is the target; text alone where the target is not one to open.
export function link(label, address) {
  const url = target(address);
  if (!url) return [label, address && label !== address ? ` (${address})` : null];
  const a = el('a', { title: url.href }, label);
  a.href = url.href;
  a.rel = 'noopener noreferrer';
  a.target = '_blank';
  const same = typeof label === 'string' && (url.href === label || url.href === `${label}/` || address === label);
  return [a, same ? null : el('span', { class: 'target' }, ` (${url.href})`)];
}

// A picture of bytes that are here; `alt` is empty, what is beside it says what it is.
export function picture(blob, kind) {
  const node = el('img', { class: kind });
  Object.assign(node, { alt: '', src: URL.createObjectURL(blob), onload: () => URL.revokeObjectURL(node.src) });
  return node;
}

// Said to a screen reader, and seen by nobody.
export function announce(text) { byId('announcer').textContent = clean(text); }

// A short message at the edge of the page; errors stay until they are closed.
export function toast(text, hint, isError = false) {
  const close = el('button', { class: 'quiet', 'aria-label': 'Close', click: () => node.remove() }, '×');
  const node = el('div', { class: isError ? 'toast error' : 'toast', role: isError ? 'alert' : 'status' },
    el('div', {}, el('div', {}, text), hint ? el('div', { class: 'hint' }, hint) : null), close);
  byId('toasts').append(node);
  if (!isError) setTimeout(() => node.remove(), TOAST_MS);
  while (byId('toasts').children.length > TOASTS) byId('toasts').firstChild.remove();
}

const TOAST_MS = 5000; // How long a message that is no error is shown, and how many are
const TOASTS = 4;
export const failed = (error) => toast(error.message, error.hint, true);

// A modal dialog; the browser keeps the focus inside and gives it back.
export function dialog(title, ...children) {
  const close = el('button', { class: 'quiet', 'aria-label': 'Close', click: () => node.close() }, '×');
  const node = el('dialog', { 'aria-label': title, close: () => node.remove() }, el('header', {}, el('h2', {}, title), close), children);
  node.addEventListener('click', (event) => event.target === node && node.close());
  document.body.append(node);
  node.showModal();
  return node;
}

export const isTyping = (node) => Boolean(node?.closest?.('input, textarea, select, [contenteditable]'));
