" The commands of linger; autoload/linger.vim is loaded at the first.
command! -nargs=? Linger call linger#open(<q-args>)
command! -nargs=? LingerNew call linger#new(<q-args>)
command! -nargs=* -range LingerPrompt call linger#prompt(<q-args>, <range>, <line1>, <line2>)
command! -nargs=* LingerAnswer call linger#answer(<f-args>)
command! LingerCancel call linger#cancel()
