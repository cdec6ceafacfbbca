" Vim with `contrib/vim`, driven by `it/editors.rs`: the commands and keys that a user has, and what the buffer shows.
let g:linger_program = $LINGER_PROGRAM
let s:buf = 0

function s:lines() abort
  return s:buf ? getbufline(s:buf, 1, '$') : []
endfunction

function s:wait(what, Condition) abort
  let began = reltime()
  while !a:Condition()
    if reltimefloat(reltime(began)) * 1000 > str2nr($LINGER_TIMEOUT)
      throw a:what .. ': not in time: ' .. string(s:lines())
    endif
    sleep 5m
  endwhile
endfunction

function s:has(line) abort
  return {-> index(s:lines(), a:line) >= 0}
endfunction

function s:shown() abort
  let s:buf = bufnr('^linger://')
  return s:buf > 0
endfunction

function s:check(well, what) abort
  if !a:well | throw a:what .. ': ' .. string(s:lines()) | endif
endfunction

" The lines that a replay has too: an old question is not asked again.
function s:lasting() abort
  return filter(copy(s:lines()), {_, line -> line !~ '^? ' && line !~ '^  [-+@]' && line !~ '^   \(one\|three\)$'})
endfunction

function s:main() abort
  edit note.txt
  let note = win_getid()
  LingerNew
  call s:wait('a buffer', funcref('s:shown'))
  call win_gotoid(note)
  2LingerPrompt change this
  call s:wait('the first words', s:has('  begun'))
  call s:check(linger#status() == 'running', linger#status())
  let status = json_decode(system(shellescape($LINGER_PROGRAM) .. ' daemon status --json'))
  call system('kill -9 ' .. status.pid)
  " What the model says is text.
  call s:wait('the other words', s:has('  I look.^[]0;x^G<U+202E>'))
  call s:wait('the last line', s:has('  # vim: set shiftwidth=7:'))
  call s:check(getbufvar(s:buf, '&shiftwidth') != 7, 'a modeline counted')
  call s:wait('a question', {-> linger#status() == 'running, 1 waiting'})
  call s:check(s:has('  -old')() && s:has('  +new')(), 'no difference')
  LingerAnswer allow_once
  call s:wait('the end of the turn', s:has('- end_turn'))
  call s:check(s:has('  Changed.')() && s:has('- interrupted')(), 'lost lines')
  " Enter jumps to the line that was changed.
  call win_gotoid(win_findbuf(s:buf)[0])
  call s:check(search('^@ .*note\.txt:2$') > 0, 'no place to jump to')
  execute "normal \<CR>"
  call s:check(expand('%:t') == 'note.txt' && line('.') == 2 && getline('.') == 'new', 'jumped to ' .. expand('%') .. ':' .. line('.'))
  LingerPrompt stop soon
  call s:wait('more words', s:has('  cancel me'))
  LingerCancel
  call s:wait('the cancelled turn', s:has('- cancelled'))
  " Another look shows the same, nothing twice and nothing less.
  let [before, first] = [s:lasting(), s:buf]
  execute 'Linger' matchstr(bufname(s:buf), '//\zs.*')
  call s:wait('the same again', {-> s:shown() && s:buf != first && s:lasting() == before})
endfunction

runtime plugin/linger.vim
try
  call s:main()
  call writefile(['all is well'], $LINGER_OUTPUT)
  qall!
catch
  call writefile([v:exception, v:throwpoint, execute('messages')], $LINGER_OUTPUT)
  cquit!
endtry
