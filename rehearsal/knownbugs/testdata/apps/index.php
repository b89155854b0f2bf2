<?php
if ($_SERVER['REQUEST_URI'] === '/slow') usleep(1500000);
echo str_repeat('hello ', 100);
