// Text of models, tools, files and servers, made safe to read: what steers a screen or reorders text becomes visible.
//
// The same rules as the terminal client's (`client/src/terminal/clean.rs`), and the marks of direction besides: a browser
// obeys them. Deliberately absent: HTML. Text reaches the page as text nodes only (`dom.js`), so nothing is escaped.

const STEERS =
  /[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufff9-\ufffb\u{e0000}-\u{e0fff}]/gu;

// Takes no room, or looks like a space and is none.
const UNSEEN =
  /[\r\p{Mn}\p{Me}\p{Cf}\p{Default_Ignorable_Code_Point}\u00a0\u2000-\u200f\u202f\u205f-\u206f\u2800\u3000\ufff0-\ufff8]/gu;

const number = (c) => `<${c.codePointAt(0).toString(16).padStart(4, '0')}>`;

function sign(c) {
  const code = c.codePointAt(0);
  if (c === '\r' || code >= 0xe0000) return '';
  if (code < 0x20) return String.fromCodePoint(0x2400 + code);
  return code === 0x7f ? '␡' : number(c);
}

// Only printing characters, line feeds and tabs are left; a carriage return and invisible tags are dropped.
export const clean = (text) => String(text).replace(STEERS, sign);

// As `clean`, on one line.
export const cleanLine = (text) => clean(text).replace(/\n/g, '⏎');

// For text that a person is asked to allow: no character is left out, and one without width is shown by its number.
export const cleanExact = (text) => clean(String(text).replace(UNSEEN, (c) => (c === '\r' ? '␍' : number(c))));
