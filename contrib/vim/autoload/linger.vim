" linger in Vim (9.0 or newer): a session in a split, over the daemon's socket; no dependencies.
"
" :Linger [SESSION] attaches, :LingerNew [MODEL] starts one, :'<,'>LingerPrompt WORDS prompts with the selection,
" :LingerAnswer [NAME [REASON]] answers, :LingerCancel cancels; in the buffer Enter jumps to a file or answers a question.
" linger#status() is for a status line; g:linger_program, g:linger_model and g:linger_mode configure it.
" Text from models and tools is text: indented by two blanks, its control characters visible, never evaluated.

" The variables that a session's tools get: none of them holds a secret.
let s:env = split('PATH HOME USER LOGNAME SHELL LANG LC_ALL LC_CTYPE TZ TMPDIR SSH_AUTH_SOCK XDG_RUNTIME_DIR EDITOR CARGO_HOME'
  \ .. ' RUSTUP_HOME GOPATH JAVA_HOME VIRTUAL_ENV NVM_DIR DISPLAY WAYLAND_DISPLAY DBUS_SESSION_BUS_ADDRESS')
" A lost daemon is dialled for 15 s, and started after half a second: its keeper needs a moment. In milliseconds.
let [s:patience, s:keeper, s:pause] = [15000, 500, 50]
" The error of a daemon that is ending.
let s:ending = -31017

" The channel, requests without an answer by a number of ours, the session that is shown, and since when the daemon is lost.
let [s:channel, s:last, s:open, s:shown, s:down, s:starting] = [v:null, 0, {}, {}, v:null, v:false]

" Visible forms of control, bidirectional and zero-width characters.
function s:clean(text) abort
  let text = substitute(a:text, '[\x01-\x08\x0b-\x1f]', '\="^" .. nr2char(char2nr(submatch(0)) + 64)', 'g')
  let hidden = '[\x7f\u80-\u9f\u200b-\u200f\u2028-\u202e\u2060-\u206f]'
  return substitute(text, hidden, '\=printf("<U+%04X>", char2nr(submatch(0)))', 'g')
endfunction

function s:say(text) abort
  echohl WarningMsg | echomsg 'linger: ' .. s:clean(a:text) | echohl None
endfunction

" 128 bits that only this request has.
function s:key() abort
  return sha256(join([reltimestr(reltime()), getpid(), rand(), rand(), rand(), rand()]))[:31]
endfunction

" Adds to the end of the session's buffer: text to the last line, each further line with the gutter.
function s:append(text, gutter) abort
  let buf = s:shown.buf
  if !bufexists(buf) | return | endif
  let [first; more] = split(s:clean(a:text), "\n", v:true)
  let end = getbufinfo(buf)[0].linecount
  call setbufvar(buf, '&modifiable', 1)
  call setbufline(buf, end, getbufline(buf, end)[0] .. first)
  call appendbufline(buf, end, map(more, {_, line -> a:gutter .. line}))
  call setbufvar(buf, '&modifiable', 0)
  for win in win_findbuf(buf)
    " A window that shows the end goes on showing it.
    if line('.', win) >= end | call win_execute(win, 'normal! G') | endif
  endfor
endfunction

" A line of linger's own, in the first column; `what` of others in one line.
function s:own(mark, what = '') abort
  let s:shown.stream = ''
  let first = getbufline(s:shown.buf, 1, '$') == ['']
  call s:append((first ? '' : "\n") .. a:mark .. substitute(a:what, "\n", ' ', 'g'), '')
endfunction

function s:streamed(stream, text) abort
  if s:shown.stream isnot a:stream
    call s:append("\n  ", '')
    let s:shown.stream = a:stream
  endif
  call s:append(a:text, '  ')
endfunction

" A request; one without an answer is sent again over the next connection, with its key.
function s:ask(method, params, Done = {-> 0}) abort
  let s:last += 1
  let s:open[s:last] = #{method: a:method, params: a:params, done: a:Done}
  if s:channel is v:null | call s:connect() | else | call s:send(s:last) | endif
endfunction

function s:send(number) abort
  let request = s:open[a:number]
  let message = #{method: request.method, params: request.params}
  call ch_sendexpr(s:channel, message, #{callback: {_, answer -> s:answered(a:number, answer)}})
endfunction

function s:answered(number, answer) abort
  if !has_key(s:open, a:number) | return | endif
  let failed = get(a:answer, 'error', {})
  " A daemon that is ending refuses; the next one is asked again.
  if get(failed, 'code') == s:ending | return | endif
  let request = remove(s:open, a:number)
  if empty(failed) | call request.done(a:answer.result) | else | call s:say(failed.message) | endif
endfunction

function s:attach() abort
  let after = has_key(s:shown, 'cursor') ? #{after: s:shown.cursor} : {}
  call s:ask('session/attach', extend(after, #{session: s:shown.id, person: v:true}))
endfunction

function linger#socket() abort
  if !empty($LINGER_SOCKET) | return $LINGER_SOCKET | endif
  return ($XDG_STATE_HOME =~ '^/' ? $XDG_STATE_HOME : $HOME .. '/.local/state') .. '/linger/lingerd.sock'
endfunction

function s:connect(timer = 0) abort
  if s:channel isnot v:null | return | endif
  let socket = linger#socket()
  let dir = fnamemodify(socket, ':h')
  if isdirectory(dir) && (getfperm(dir) !~ '------$' || getftype(dir) != 'dir' || !filewritable(dir))
    return s:say(dir .. ' is not a directory of yours that is closed to others')
  endif
  try
    let mine = ch_open('unix:' .. socket, #{mode: 'lsp', callback: funcref('s:event'), close_cb: funcref('s:lost')})
  catch /E902/
    return s:lost(v:null)
  endtry
  if ch_status(mine) != 'open' | return s:lost(v:null) | endif
  let [s:channel, waiting] = [mine, s:open]
  let s:open = {}
  call s:ask('daemon/hello', #{client: 'vim@' .. getpid(), protocol: [1, 1]}, {-> execute('let s:down = v:null')})
  if !empty(s:shown) | call s:attach() | endif
  for number in sort(keys(waiting), 'N')
    if waiting[number].method != 'session/attach' && waiting[number].method != 'daemon/hello'
      let s:open[number] = waiting[number]
      call s:send(number)
    endif
  endfor
endfunction

function s:lost(channel) abort
  let s:channel = v:null
  if s:down is v:null | let s:down = reltime() | endif
  let past = reltimefloat(reltime(s:down)) * 1000
  if past > s:patience
    let [s:down, s:open] = [v:null, {}]
    return s:say('cannot reach the daemon; `linger doctor` says what is wrong')
  endif
  if past >= s:keeper && !s:starting
    let s:starting = v:true
    call job_start([get(g:, 'linger_program', 'linger'), 'daemon', 'start'], #{exit_cb: {-> execute('let s:starting = v:false')}})
  endif
  call timer_start(s:pause, funcref('s:connect'))
  redrawstatus!
endfunction

function s:event(channel, message) abort
  let it = get(a:message, 'params', {})
  if get(a:message, 'method', '') != 'session/event' || empty(s:shown) || it.session != s:shown.id | return | endif
  let e = it.event
  if get(e, 'seq', v:numbermax) <= s:shown.seq | return | endif
  call extend(s:shown, #{seq: get(e, 'seq', s:shown.seq), cursor: it.cursor})
  if has_key(s:on, e.kind) | call s:on[e.kind](e, get(it, 'answered', v:false)) | endif
  redrawstatus!
endfunction

" The content of a blob; what is left of it is asked for until `done` gets the whole.
function s:blob(name, Done, got = '', offset = 0) abort
  if empty(a:name) | return a:Done(a:got) | endif
  let More = {piece -> [a:got .. system('base64 -d', piece.data), get(piece, 'next', v:null)]}
  let Next = {more -> more[1] is v:null ? a:Done(more[0]) : s:blob(a:name, a:Done, more[0], more[1])}
  call s:ask('blob/get', #{blob: a:name, offset: a:offset}, {piece -> Next(More(piece))})
endfunction

function s:diff(before, after) abort
  let files = [tempname(), tempname()]
  call map([a:before, a:after], {n, text -> writefile(split(text, "\n", v:true), files[n], 'b')})
  let lines = systemlist('diff -u ' .. join(map(copy(files), 'shellescape(v:val)')))
  call map(files, 'delete(v:val)')
  return join(lines[2:], "\n")
endfunction

" Shows what a question would change, as differences; then it can be answered.
function s:question(q, changes) abort
  if empty(a:changes)
    call s:own('? answer: ', 'Enter here, or :LingerAnswer ' .. join(a:q.options, '|'))
    call add(s:shown.questions, a:q)
    redrawstatus!
    return
  endif
  let [change; rest] = a:changes
  let Show = {before, after -> [s:own('? ' .. change.kind .. ' ', change.path), s:streamed('diff', s:diff(before, after)), s:question(a:q, rest)]}
  call s:blob(get(change, 'before', ''), {before -> s:blob(get(change, 'after', ''), {after -> Show(before, after)})})
endfunction

" What runs; with the tool, unless that says it. How a turn ended, and the words of a block.
let s:action = {e -> stridx(e.action, e.tool) == 0 ? e.action : e.tool .. ': ' .. e.action}
let s:ending = {e -> e.stop_reason .. (has_key(e, 'detail') ? ': ' .. e.detail : '')}
let s:words = {block -> get(block, 'text', '[' .. block.type .. ']')}

let s:on = {}
let s:on.prompt_accepted = {e, past -> [s:own('> '), map(copy(e.content), {_, it -> s:append(s:words(it), '  ')})]}
let s:on.turn_started = {e, past -> extend(s:shown, #{state: 'running'})}
let s:on.turn_finished = {e, past -> [extend(s:shown, #{state: 'idle'}), s:own('- ', s:ending(e))]}
let s:on.text_delta = {e, past -> s:streamed(e.message .. e.block, e.text)}
let s:on.tool_output_delta = {e, past -> s:streamed(e.call_id, e.text)}
let s:on.message = {e, past -> get(e, 'interrupted', v:false) ? s:own('- interrupted') : 0}
let s:on.tool_started = {e, past -> s:own('* ', s:action(e))}
let s:on.notice = {e, past -> s:own('! ', e.text)}
let s:on.permission_resolved = {e, past -> s:resolved(e.permission, e.decision, e)}
let s:on.question_resolved = {e, past -> s:resolved(e.question, get(e, 'answer', 'withdrawn'), e)}
function s:on.tool_finished(e, past) abort
  if a:e.is_error
    call s:own('* failed')
    call map(copy(a:e.content), {_, it -> s:streamed('failure', s:words(it))})
  elseif !empty(get(a:e, 'changes', []))
    call map(copy(get(a:e, 'locations', [])), {_, where -> s:own('@ ', where.path .. ':' .. get(where, 'line', 1))})
  endif
endfunction
let s:on.permission_requested = {e, past -> s:asked(s:action(e), e.permission, e, e.options, past)}
function s:on.question_asked(e, past) abort
  let it = a:e.asked
  let options = has_key(it, 'schema') ? ['accept', 'decline'] : map(copy(it.options), 'v:val.name')
  call s:asked(get(it, 'text', ''), a:e.question, it, options, a:past)
endfunction
function s:asked(text, id, it, options, past) abort
  call s:own('? ', a:text)
  let q = #{id: a:id, digest: a:it.digest, options: a:options, form: has_key(a:it, 'schema')}
  if !a:past | call s:question(q, get(a:it, 'changes', [])) | endif
endfunction
function s:resolved(id, answer, e) abort
  call filter(s:shown.questions, {_, q -> q.id != a:id})
  call s:own('? ' .. a:answer .. ', by ', get(a:e, 'by', ''))
endfunction

" Shows a session in a split; its buffer is made anew, from the beginning of the session.
function s:show(id) abort
  if !empty(s:shown) | call s:ask('session/detach', #{session: s:shown.id}) | endif
  let name = 'linger://' .. a:id
  if bufexists(name) | execute 'bwipeout!' bufnr(name) | endif
  botright new
  setlocal buftype=nofile noswapfile nomodeline undolevels=-1 wrap linebreak statusline=%f\ %{linger#status()}
  execute 'file' fnameescape(name)
  setlocal nomodifiable
  nnoremap <buffer> <silent> <CR> :call linger#enter()<CR>
  let s:shown = #{id: a:id, buf: bufnr(), seq: 0, questions: [], state: 'idle', stream: ''}
  call s:attach()
endfunction

function linger#open(name) abort
  let params = empty(a:name) ? #{cwd: getcwd(), limit: 1} : #{matching: a:name, limit: 1}
  let Missing = {-> empty(a:name) ? linger#new('') : s:say("there is no session '" .. a:name .. "'")}
  call s:ask('session/list', params, {rows -> empty(rows) ? Missing() : s:show(rows[0].session)})
endfunction

function linger#new(model) abort
  let env = filter(environ(), {name -> index(s:env, name) >= 0})
  let model = empty(a:model) ? get(g:, 'linger_model', '') : a:model
  let params = #{cwd: getcwd(), env: env, key: s:key(), model: model, mode: get(g:, 'linger_mode', '')}
  call s:ask('session/create', filter(params, '!empty(v:val)'), {made -> s:show(made.session)})
endfunction

" Prompts the session that is shown, with lines of this buffer as they are, also unsaved ones.
function linger#prompt(text, range, first, last) abort
  if empty(s:shown) | return s:say('no session is shown: :Linger or :LingerNew first') | endif
  let [text, fence] = [a:text, '```']
  if a:range
    let code = join(getline(a:first, a:last), "\n")
    while stridx(code, fence) >= 0 | let fence ..= '`' | endwhile
    let text = join([text, '', expand('%:p') .. ':' .. a:first .. '-' .. a:last, fence, code, fence], "\n")
  endif
  call s:ask('session/prompt', #{session: s:shown.id, content: text, key: s:key()})
endfunction

" Answers the oldest question; asks which answer where none is named.
function linger#answer(name = '', ...) abort
  let questions = get(s:shown, 'questions', [])
  if empty(questions) | return s:say('no question waits in the session that is shown') | endif
  let [q, name, reason] = [questions[0], a:name, join(a:000)]
  if empty(name)
    let choice = inputlist(['Answer:'] + map(copy(q.options), '(v:key + 1) .. ". " .. v:val'))
    if choice < 1 || choice > len(q.options) | return | endif
    let name = q.options[choice - 1]
  endif
  let params = #{question: q.id, answer: name, digest: q.digest, key: s:key()}
  if q.form && name == 'accept'
    try
      let params.value = json_decode(reason)
    catch
      return s:say('give the fields of the form as JSON: :LingerAnswer accept {"answer": …}')
    endtry
  elseif !empty(reason)
    let params.reason = reason
  endif
  call s:ask('question/answer', params)
endfunction

function linger#cancel() abort
  if !empty(s:shown) | call s:ask('session/cancel', #{session: s:shown.id, key: s:key()}) | endif
endfunction

function linger#enter() abort
  let found = matchlist(getline('.'), '^@ \(.*\):\(\d\+\)$')
  if empty(found) | return getline('.') =~ '^? answer:' ? linger#answer() : 0 | endif
  if winnr('#') > 0 && winnr('#') != winnr() | wincmd p | else | leftabove split | endif
  execute 'edit' fnameescape(found[1])
  " It was changed under a buffer that was there already.
  if !&modified | edit | endif
  call cursor(str2nr(found[2]), 1)
endfunction

function linger#status() abort
  if empty(s:shown) | return '' | endif
  let waiting = empty(s:shown.questions) ? '' : printf(', %d waiting', len(s:shown.questions))
  return (s:channel is v:null ? 'reconnecting' : s:shown.state) .. waiting
endfunction
