// The scripts' texts in ko: `make messages` writes this file.
/* eslint no-unused-vars: off */
globalThis.translations = { plural: (n) => Number(0), texts: {
"%(count)s file uploaded": [
"파일 %(count)s개 업로드됨"
],
"%(days)s d %(hours)s h": [
"%(days)s일 %(hours)s시간"
],
"%(done)s of %(count)s file uploaded, %(failed)s failed": [
"파일 %(count)s개 중 %(done)s개 업로드됨, %(failed)s개 실패"
],
"%(hours)s h %(minutes)s min": [
"%(hours)s시간 %(minutes)s분"
],
"%(hours)s h %(minutes)s min left": [
"%(hours)s시간 %(minutes)s분 남음"
],
"%(minutes)s min %(seconds)s s": [
"%(minutes)s분 %(seconds)s초"
],
"%(minutes)s min left": [
"%(minutes)s분 남음"
],
"%(seconds)s s": [
"%(seconds)s초"
],
"%(sent)s of %(total)s": [
"%(total)s 중 %(sent)s"
],
"%(time)s left": [
"%(time)s 남음"
],
"A proxy in front of the platform refuses so large a file.": [
"플랫폼 앞의 프록시가 이렇게 큰 파일을 거부합니다."
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
"Connecting…": [
"연결 중…"
],
"Copied": [
"복사됨"
],
"Interrupted uploads": [
"중단된 업로드"
],
"Live": [
"실시간"
],
"Not connected": [
"연결되지 않음"
],
"Not connected. As of %(time)s": [
"연결되지 않음. %(time)s 기준"
],
"Not saved yet": [
"아직 저장되지 않음"
],
"Nothing uploaded": [
"업로드된 것 없음"
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
"The file was changed or removed on your computer.": [
"컴퓨터에서 파일이 변경되었거나 삭제되었습니다."
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
"The platform refused it (%(status)s).": [
"플랫폼이 거부했습니다(%(status)s)."
],
"This is another file, or it was changed since. Choose the same one, or discard this and upload it anew.": [
"다른 파일이거나 그 후에 변경된 파일입니다. 같은 파일을 선택하거나, 이것을 버리고 새로 업로드하세요."
],
"Uploading %(number)s of %(count)s file": [
"파일 %(count)s개 중 %(number)s번째 업로드 중"
],
"What you typed is not saved. Leave it?": [
"입력한 내용이 저장되지 않았습니다. 나갈까요?"
],
"You are signed out, or may not write here any more.": [
"로그아웃되었거나 더 이상 여기에 쓸 수 없습니다."
],
"You are signed out. Sign in again in another tab, then save.": [
"로그아웃되었습니다. 다른 탭에서 다시 로그인한 다음 저장하세요."
],
"cancelled": [
"취소됨"
],
"connection lost, trying again": [
"연결이 끊겨 다시 시도 중"
],
"ending now": [
"곧 종료"
],
"less than a minute left": [
"1분 미만 남음"
],
"paused at %(percent)s %%": [
"%(percent)s %%에서 일시 정지"
],
"skipped": [
"건너뜀"
],
"the name exists already": [
"같은 이름이 이미 있음"
],
"uploaded": [
"업로드됨"
],
"waiting": [
"대기 중"
]
} };
