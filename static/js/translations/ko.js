// The scripts' texts in ko: `make messages` writes this file.
/* eslint no-unused-vars: off */
globalThis.translations = { plural: (n) => Number(0), texts: {
"%(asked)s + %(answered)s tokens, first text after %(first)s s, all after %(all)s s": [
"토큰 %(asked)s + %(answered)s개, 첫 글자까지 %(first)s초, 전부 %(all)s초"
],
"%(card)s of the GPU": [
"GPU의 %(card)s"
],
"%(count)s core, %(memory)s RAM, %(fgpu)s fGPU": [
"%(count)s코어, RAM %(memory)s, %(fgpu)s fGPU"
],
"%(count)s file uploaded": [
"파일 %(count)s개 업로드됨"
],
"%(count)s row lacks its name or its value and is not applied.": [
"%(count)s개 줄에 이름이나 값이 없어 적용되지 않습니다."
],
"%(count)s variable is set: %(names)s": [
"변수 %(count)s개 설정됨: %(names)s"
],
"%(days)s d %(hours)s h": [
"%(days)s일 %(hours)s시간"
],
"%(device)s memory": [
"%(device)s 메모리"
],
"%(done)s of %(count)s file uploaded, %(failed)s failed": [
"파일 %(count)s개 중 %(done)s개 업로드됨, %(failed)s개 실패"
],
"%(errors)s errors, %(rejected)s turned away": [
"오류 %(errors)s개, 거절 %(rejected)s개"
],
"%(fgpu)s fGPU = %(share)s (%(models)s)": [
"%(fgpu)s fGPU = %(share)s (%(models)s)"
],
"%(fgpu)s fGPU of %(name)s (%(memory)s)": [
"%(name)s의 %(fgpu)s fGPU (%(memory)s)"
],
"%(fgpu)s fGPU: %(share)s": [
"%(fgpu)s fGPU: %(share)s"
],
"%(guaranteed)s of %(count)s core guaranteed, the rest while others leave it idle": [
"코어 %(count)s개 중 %(guaranteed)s 보장, 나머지는 다른 세션이 쓰지 않는 동안"
],
"%(held)s of %(all)s on average": [
"평균 %(all)s개 중 %(held)s개"
],
"%(hours)s fGPU hours": [
"%(hours)s fGPU 시간"
],
"%(hours)s fGPU hours for 1,000 requests": [
"요청 1,000개당 %(hours)s fGPU 시간"
],
"%(hours)s h %(minutes)s min": [
"%(hours)s시간 %(minutes)s분"
],
"%(hours)s h %(minutes)s min left": [
"%(hours)s시간 %(minutes)s분 남음"
],
"%(left)s left in your policy": [
"정책에서 %(left)s 남음"
],
"%(memory)s of a GPU, %(percent)s %% of its time": [
"GPU 메모리 %(memory)s, 시간의 %(percent)s %%"
],
"%(minutes)s min %(seconds)s s": [
"%(minutes)s분 %(seconds)s초"
],
"%(minutes)s min left": [
"%(minutes)s분 남음"
],
"%(name)s is set twice.": [
"%(name)s이(가) 두 번 설정되었습니다."
],
"%(name)s over time": [
"시간에 따른 %(name)s"
],
"%(number)s of %(count)s": [
"%(count)s개 중 %(number)s번째"
],
"%(number)s s": [
"%(number)s초"
],
"%(outstanding)s under way, %(waiting)s waiting": [
"처리 중 %(outstanding)s개, 대기 %(waiting)s개"
],
"%(percent)s of what they hold": [
"가진 몫의 %(percent)s"
],
"%(problem)s Trying again…": [
"%(problem)s 다시 시도하는 중…"
],
"%(rate)s requests a second": [
"초당 요청 %(rate)s개"
],
"%(received)s received, %(sent)s sent": [
"수신 %(received)s, 송신 %(sent)s"
],
"%(replicas)s on average": [
"평균 %(replicas)s개"
],
"%(seconds)s s": [
"%(seconds)s초"
],
"%(sent)s of %(total)s": [
"%(total)s 중 %(sent)s"
],
"%(share)s of %(size)s": [
"%(size)s 중 %(share)s"
],
"%(share)s of your share, %(card)s of the GPU": [
"할당분의 %(share)s, GPU의 %(card)s"
],
"%(size)s bytes that are no text": [
"텍스트가 아닌 %(size)s바이트"
],
"%(size)s of GPU memory: %(shares)s": [
"GPU 메모리 %(size)s: %(shares)s"
],
"%(size)s × (%(each)s) = %(together)s": [
"%(size)s × (%(each)s) = %(together)s"
],
"%(size)s: %(shares)s": [
"%(size)s: %(shares)s"
],
"%(status)s, after %(milliseconds)s ms": [
"%(status)s, %(milliseconds)s ms 뒤"
],
"%(time)s ago": [
"%(time)s 전"
],
"%(time)s left": [
"%(time)s 남음"
],
"%(url)s cannot be reached from this browser, or has hung up.": [
"이 브라우저에서 %(url)s에 닿을 수 없거나 연결이 끊겼습니다."
],
"%(used)s of %(count)s core": [
"코어 %(count)s개 중 %(used)s"
],
"%(used)s of %(limit)s": [
"%(limit)s 중 %(used)s"
],
"%(used)s of your %(share)s; the GPU has %(card)s": [
"할당분 %(share)s 중 %(used)s. GPU 전체는 %(card)s"
],
"%(version)s (not ready)": [
"%(version)s (준비되지 않음)"
],
"%(waiting)s on average": [
"평균 %(waiting)s개"
],
"1 fGPU is a whole %(device)s here": [
"여기서 1 fGPU는 %(device)s의 1/%(count)s입니다"
],
"1 whole %(device)s": [
"온전한 %(device)s %(count)s개"
],
"1 whole %(device)s with %(memory)s": [
"각각 %(memory)s인 온전한 %(device)s %(count)s개"
],
"1 whole GPU and %(memory)s of another, %(percent)s %% of its time": [
"온전한 GPU %(count)s개와 다른 GPU의 메모리 %(memory)s, 시간의 %(percent)s %%"
],
"A name has letters, digits and _ and does not begin with a digit.": [
"이름에는 영문자, 숫자와 _ 를 쓸 수 있고 숫자로 시작할 수 없습니다."
],
"A part of this page did not arrive, so the terminal cannot start. A filter or the network on the way may have held it back.": [
"페이지의 일부가 도착하지 않아 터미널을 시작할 수 없습니다. 필터나 네트워크가 막았을 수 있습니다."
],
"A path begins with /.": [
"경로는 /로 시작합니다."
],
"A program wants to copy: %(text)s": [
"프로그램이 복사하려고 합니다: %(text)s"
],
"A proxy in front of the platform refuses so large a file.": [
"플랫폼 앞의 프록시가 이렇게 큰 파일을 거부합니다."
],
"A request of the method %(method)s has no body.": [
"%(method)s 메서드의 요청에는 본문이 없습니다."
],
"Answer": [
"응답"
],
"CPU": [
"CPU"
],
"Cancel all": [
"모두 취소"
],
"Cancel all and close": [
"모두 취소하고 닫기"
],
"Cancel all uploads that have not ended?": [
"끝나지 않은 업로드를 모두 취소할까요?"
],
"Close": [
"닫기"
],
"Close without saving": [
"저장하지 않고 닫기"
],
"Closed": [
"닫힘"
],
"Connect again": [
"다시 연결"
],
"Connected": [
"연결됨"
],
"Connecting…": [
"연결 중…"
],
"Copied": [
"복사됨"
],
"First text after %(first)s s, all after %(all)s s": [
"첫 글자까지 %(first)s초, 전부 %(all)s초"
],
"GPU in use": [
"사용 중인 GPU"
],
"Interrupted uploads": [
"중단된 업로드"
],
"It answered with status %(status)s.": [
"상태 %(status)s로 응답했습니다."
],
"It cannot serve now.": [
"지금은 서비스할 수 없습니다."
],
"It does not take the token.": [
"토큰을 받아들이지 않습니다."
],
"It names no models at /v1/models.": [
"/v1/models에 모델이 없습니다."
],
"It takes no more requests now.": [
"지금은 요청을 더 받지 않습니다."
],
"Its answer cannot be read.": [
"응답을 읽을 수 없습니다."
],
"Its answer is too long to show.": [
"응답이 너무 길어 보일 수 없습니다."
],
"Its answer was empty.": [
"응답이 비어 있습니다."
],
"Leave without saving": [
"저장하지 않고 나가기"
],
"Leave without saving what you typed?": [
"입력한 내용을 저장하지 않고 나갈까요?"
],
"Live": [
"실시간"
],
"New shell": [
"새 셸"
],
"No body": [
"본문 없음"
],
"No connection since %(time)s. What you type is not sent.": [
"%(time)s부터 연결되지 않았습니다. 입력한 내용은 전송되지 않습니다."
],
"No connection. What you type is not sent. Reconnecting…": [
"연결이 없습니다. 입력한 내용은 전송되지 않습니다. 다시 연결하는 중…"
],
"None is set.": [
"설정된 변수가 없습니다."
],
"Not connected": [
"연결되지 않음"
],
"Not connected. As of %(time)s": [
"연결되지 않음. %(time)s 기준"
],
"Not found": [
"찾을 수 없음"
],
"Not on the host yet.": [
"아직 호스트에 없습니다."
],
"Not on the host yet; it is pulled first, about %(size)s.": [
"아직 호스트에 없습니다. 먼저 약 %(size)s을(를) 가져옵니다."
],
"Not on the host yet; it is pulled first.": [
"아직 호스트에 없습니다. 먼저 가져옵니다."
],
"Not saved yet": [
"아직 저장되지 않음"
],
"Not sent: there is no connection": [
"전송되지 않음: 연결이 없습니다"
],
"Nothing uploaded": [
"업로드된 것 없음"
],
"Notifications": [
"알림"
],
"Notifications, %(count)s new": [
"알림 %(count)s, 새로 옴"
],
"On %(have)s of %(total)s hosts already.": [
"호스트 %(total)s대 중 %(have)s대에 이미 있습니다."
],
"On %(have)s of %(total)s hosts already; the others pull it first, about %(size)s.": [
"호스트 %(total)s대 중 %(have)s대에 이미 있습니다. 다른 호스트는 먼저 약 %(size)s을(를) 가져옵니다."
],
"On %(have)s of %(total)s hosts already; the others pull it first.": [
"호스트 %(total)s대 중 %(have)s대에 이미 있습니다. 다른 호스트는 먼저 가져옵니다."
],
"On the host already.": [
"호스트 %(count)s대 모두에 이미 있습니다."
],
"Output of cell %(number)s": [
"셀 %(number)s의 출력"
],
"Press Ctrl+Shift+V (⌘V on a Mac) to paste": [
"붙여넣으려면 Ctrl+Shift+V(Mac은 ⌘V)를 누르세요"
],
"RAM": [
"RAM"
],
"Save the others": [
"나머지 저장"
],
"Saved at %(time)s": [
"%(time)s에 저장됨"
],
"Saving…": [
"저장 중…"
],
"Select it and press Ctrl+C": [
"선택하고 Ctrl+C를 누르세요"
],
"Select text first": [
"먼저 텍스트를 선택하세요"
],
"Send it again in %(count)s second.": [
"%(count)s초 뒤에 다시 보내세요."
],
"Sessions that wait": [
"대기 중인 세션"
],
"Sign in": [
"로그인"
],
"Some Markdown of this notebook is too much to format. It is shown as plain text.": [
"이 노트북의 Markdown 일부는 서식을 적용하기에 너무 커서 일반 텍스트로 표시합니다."
],
"Stopped.": [
"중지했습니다."
],
"Terminal": [
"터미널"
],
"That did not work, or you have cancelled it. Try again.": [
"실패했거나 취소되었습니다. 다시 시도하세요."
],
"The browser did not allow copying": [
"브라우저가 복사를 허용하지 않았습니다"
],
"The file was changed or removed on your computer.": [
"컴퓨터에서 파일이 변경되었거나 삭제되었습니다."
],
"The notebook could not be loaded. Reload the page to try again.": [
"노트북을 불러오지 못했습니다. 페이지를 새로 고쳐 다시 시도하세요."
],
"The notebook has more than is shown here. Open it in a session to see all.": [
"노트북에 여기 표시된 것보다 더 많은 내용이 있습니다. 모두 보려면 세션에서 여세요."
],
"The notebook has no cells.": [
"노트북에 셀이 없습니다."
],
"The page has no connection to the terminal. A proxy, firewall or extension on the way may not let websockets pass.": [
"페이지가 터미널에 연결되지 않았습니다. 프록시, 방화벽 또는 확장 프로그램이 웹소켓을 막을 수 있습니다."
],
"The platform answered with an error (%(status)s).": [
"플랫폼이 오류(%(status)s)로 응답했습니다."
],
"The platform answered with an error (%(status)s). Nothing was changed.": [
"플랫폼이 오류(%(status)s)로 응답했습니다. 변경된 것은 없습니다."
],
"The platform cannot be reached. Try again.": [
"플랫폼에 연결할 수 없습니다. 다시 시도하세요."
],
"The platform cannot be reached. Your text is still here; try again.": [
"플랫폼에 연결할 수 없습니다. 입력한 내용은 그대로 있으니 다시 시도하세요."
],
"The platform gave no token. Reload this page; you may have to sign in again.": [
"플랫폼이 토큰을 주지 않았습니다. 이 페이지를 새로 고치세요. 다시 로그인해야 할 수 있습니다."
],
"The platform is busy at present. What you typed is still here: try again in a moment.": [
"플랫폼이 지금 바쁩니다. 입력한 내용은 그대로 있으니 잠시 뒤에 다시 시도하세요."
],
"The platform refused it (%(status)s).": [
"플랫폼이 거부했습니다(%(status)s)."
],
"The scripts of this page have not started. They may still be on their way, or your browser may not run them.": [
"페이지의 스크립트가 시작되지 않았습니다. 아직 받는 중이거나 브라우저가 실행하지 못할 수 있습니다."
],
"The session has ended": [
"세션이 종료되었습니다"
],
"The session is being parked": [
"세션을 보관하는 중입니다"
],
"The session is parked": [
"세션이 보관되어 있습니다"
],
"The session waits to run again": [
"세션이 다시 실행되기를 기다립니다"
],
"The shell has ended": [
"셸이 종료되었습니다"
],
"The terminal lost the thread": [
"터미널 연결이 어긋났습니다"
],
"This browser has no passkeys, or the page did not come over HTTPS.": [
"이 브라우저는 패스키를 지원하지 않거나, 페이지가 HTTPS로 열리지 않았습니다."
],
"This browser has not been asked yet whether it may show notifications.": [
"이 브라우저에 아직 알림 표시 여부를 묻지 않았습니다."
],
"This browser shows notifications only of sites with HTTPS.": [
"이 브라우저는 HTTPS 사이트의 알림만 표시합니다."
],
"This browser shows notifications.": [
"이 브라우저는 알림을 표시합니다."
],
"This browser was told to show no notifications of this site; its settings change that.": [
"이 브라우저는 이 사이트의 알림을 표시하지 않도록 설정되어 있습니다. 브라우저 설정에서 바꿀 수 있습니다."
],
"This environment needs at least %(amounts)s.": [
"이 실행 환경에는 최소 %(amounts)s이(가) 필요합니다."
],
"This file has no cells in the format of Jupyter notebooks (version 4). It is shown as text.": [
"Jupyter 노트북(버전 4) 형식의 셀이 없는 파일입니다. 텍스트로 표시합니다."
],
"This file is not valid JSON, so it is not a notebook. It is shown as text.": [
"올바른 JSON이 아니므로 노트북이 아닙니다. 텍스트로 표시합니다."
],
"This is another file, or it was changed since. Choose the same one, or discard this and upload it anew.": [
"다른 파일이거나 그 후에 변경된 파일입니다. 같은 파일을 선택하거나, 이것을 버리고 새로 업로드하세요."
],
"This notebook takes too long to read. It is shown as text.": [
"이 노트북은 읽는 데 너무 오래 걸려 텍스트로 표시합니다."
],
"This passkey is added already.": [
"이미 추가된 패스키입니다."
],
"This session is not running": [
"실행 중인 세션이 아닙니다"
],
"Uploading %(number)s of %(count)s file": [
"파일 %(count)s개 중 %(number)s번째 업로드 중"
],
"What is not saved is not applied to the session. Nor are rows without a name or a value.": [
"저장하지 않은 것은 세션에 적용되지 않습니다. 이름이나 값이 없는 줄도 적용되지 않습니다."
],
"Write Name: value: %(line)s": [
"Name: value로 적으세요: %(line)s"
],
"You": [
"나"
],
"You are signed out": [
"로그아웃되었습니다"
],
"You are signed out, or may not write here any more.": [
"로그아웃되었거나 더 이상 여기에 쓸 수 없습니다."
],
"You are signed out. Sign in again in another tab, then save.": [
"로그아웃되었습니다. 다른 탭에서 다시 로그인한 다음 저장하세요."
],
"as it was": [
"기존"
],
"cancelled": [
"취소됨"
],
"changed": [
"변경 후"
],
"connection lost, trying again": [
"연결이 끊겨 다시 시도 중"
],
"does not fit %(names)s": [
"%(names)s에는 들어가지 않음"
],
"ending now": [
"곧 종료"
],
"fGPU": [
"fGPU"
],
"half within %(half)s, 95 %% within %(most)s": [
"절반은 %(half)s, 95 %%는 %(most)s 안에"
],
"image": [
"그림"
],
"less than a minute left": [
"1분 미만 남음"
],
"main1 (%(main)s) + %(others)s × (%(each)s) = %(together)s": [
"main1 (%(main)s) + %(others)s × (%(each)s) = %(together)s"
],
"no requests": [
"요청 없음"
],
"not measured": [
"측정되지 않음"
],
"not ready yet": [
"아직 준비되지 않음"
],
"paused at %(percent)s %%": [
"%(percent)s %%에서 일시 정지"
],
"skipped": [
"건너뜀"
],
"stopped": [
"중지됨"
],
"the name exists already": [
"같은 이름이 이미 있음"
],
"this environment needs %(least)s": [
"이 실행 환경에는 %(least)s이(가) 필요합니다"
],
"this environment needs %(size)s of GPU memory": [
"이 환경에는 GPU 메모리 %(size)s 필요"
],
"up to %(most)s": [
"최대 %(most)s"
],
"up to %(most)s at once": [
"한 번에 최대 %(most)s개"
],
"up to %(most)s per session": [
"세션당 최대 %(most)s"
],
"uploaded": [
"업로드됨"
],
"waiting": [
"대기 중"
],
"your policy lets %(left)s more run now, the others wait": [
"정책에 따라 지금 %(left)s개를 더 실행할 수 있고 나머지는 기다립니다"
]
} };
