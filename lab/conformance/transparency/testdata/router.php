<?php
// The paths of app.py by PHP's own server: php -S ADDRESS router.php
function whole($status, $body) {
    http_response_code($status);
    if ($status != 204 && $status != 304) header('Content-Length: ' . strlen($body));
    if ($_SERVER['REQUEST_METHOD'] != 'HEAD') echo $body;
}
switch (parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH)) {
    case '/ok': case '/close': whole(200, "ok\n"); break;
    case '/big': whole(200, str_repeat('b', 1 << 20)); break;
    case '/204': whole(204, ''); break;
    case '/304': whole(304, ''); break;
    case '/early': whole(413, "too large\n"); break;
    case '/echo': whole(200, strlen(file_get_contents('php://input')) . " bytes\n"); break;
    case '/stream':
        for ($n = 0; $n < 5; $n++) { echo "part $n\n"; flush(); usleep(20000); }
        break;
    case '/cut': header('Content-Length: 5000'); echo str_repeat('c', 1000); flush(); usleep(50000); exit;
    default: whole(404, "nothing here\n");
}
